# Tests days.sh, which lies in the current folder: a year and its days.
failed=0
while read -r year days; do
    found=$(sh ./days.sh "$year")
    if [ "$found" = "$days" ]; then
        echo "ok      $year has $days days"
    else
        echo "FAILED  $year has $days days, not $found"
        failed=1
    fi
done <<'YEARS'
2023 365
2024 366
1900 365
2000 366
YEARS
exit "$failed"
