# Says how many days a year has: sh days.sh YEAR
year=$1
days=365
[ $((year % 4)) -eq 0 ] && days=366
echo "$days"
