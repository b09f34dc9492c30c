//! Finding an installed PostgreSQL server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{PostgresError, environment::Environment};

/// The oldest major version that the server's migrations are written for.
pub(super) const OLDEST_MAJOR: u32 = 14;

/// Where packagers put the server's programs: the folder of versions, what stands before the
/// version in a name, and what follows it.
const VERSIONED_PLACES: [(&str, &str, &str); 6] = [
    ("/usr/lib/postgresql", "", "bin"),          // Debian, Ubuntu
    ("/opt/homebrew/opt", "postgresql@", "bin"), // Homebrew on Apple silicon
    ("/usr/local/opt", "postgresql@", "bin"),    // Homebrew on Intel
    ("/usr", "pgsql-", "bin"),                   // the PostgreSQL project's packages for Red Hat
    ("/usr/libexec", "postgresql", ""),          // Alpine
    ("/usr/lib", "postgresql", "bin"),           // openSUSE
];

/// A PostgreSQL server's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    bin_dir: PathBuf,
    major: u32,
}

impl Installation {
    /// Finds a server of version 14 or later.
    ///
    /// With `bin_dir`, that folder is the only one looked at. Otherwise the first hit counts: the
    /// folders of `PATH`, then Debian's, Homebrew's, Red Hat's, Alpine's and openSUSE's places,
    /// the newest version of each.
    ///
    /// # Errors
    /// [`PostgresError::NotInBinDir`] or [`PostgresError::NotInstalled`].
    pub fn find(bin_dir: Option<&Path>) -> Result<Installation, PostgresError> {
        Installation::search(bin_dir, &Environment::read(), |major| major >= OLDEST_MAJOR)?
            .ok_or(PostgresError::NotInstalled)
    }

    /// Finds the server for an existing cluster, which only its own major version can run.
    pub(super) fn find_for_cluster(
        bin_dir: Option<&Path>,
        environment: &Environment,
        cluster_dir: &Path,
        wanted: u32,
    ) -> Result<Installation, PostgresError> {
        Installation::search(bin_dir, environment, |major| major == wanted)?.ok_or_else(|| {
            PostgresError::VersionNotInstalled {
                cluster_dir: cluster_dir.to_owned(),
                wanted,
            }
        })
    }

    /// The first installation whose major version is `usable`; an error when `bin_dir` has none
    /// at all.
    fn search(
        bin_dir: Option<&Path>,
        environment: &Environment,
        usable: impl Fn(u32) -> bool,
    ) -> Result<Option<Installation>, PostgresError> {
        if let Some(bin_dir) = bin_dir {
            let found = Installation::probe(bin_dir)
                .filter(|found| found.major >= OLDEST_MAJOR)
                .ok_or_else(|| PostgresError::NotInBinDir {
                    bin_dir: bin_dir.to_owned(),
                })?;
            return Ok(Some(found).filter(|found| usable(found.major)));
        }
        let on_path = environment.path.iter().flat_map(std::env::split_paths);
        let packaged = VERSIONED_PLACES
            .into_iter()
            .flat_map(|(parent, before, after)| versions(Path::new(parent), before, after));
        Ok(on_path
            .chain(packaged)
            .filter(|dir| dir.is_absolute())
            .filter_map(|dir| Installation::probe(&dir))
            .find(|found| usable(found.major)))
    }

    /// Asks the programs in a folder for their version; `None` when they are not there.
    fn probe(bin_dir: &Path) -> Option<Installation> {
        // Client packages bring psql without a server, so the server's two programs are asked for.
        if !bin_dir.join("initdb").is_file() {
            return None;
        }
        let output = Command::new(bin_dir.join("postgres"))
            .arg("--version")
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let major = parse_major(&String::from_utf8_lossy(&output.stdout))?;
        Some(Installation {
            bin_dir: bin_dir.to_owned(),
            major,
        })
    }

    /// The folder with `postgres` and `initdb`.
    pub fn bin_dir(&self) -> &Path {
        &self.bin_dir
    }

    /// The major version, such as 17.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The path of one of the server's programs.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

/// The folders `parent/before‹N›/after`, newest version first.
fn versions(parent: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry
                .file_name()
                .to_str()?
                .strip_prefix(before)?
                .parse()
                .ok()?;
            Some((version, entry.path().join(after)))
        })
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// The major version in `postgres (PostgreSQL) 17.2 (Debian …)`, also of `18beta1` and `19devel`.
fn parse_major(version_line: &str) -> Option<u32> {
    let number = version_line.split_once("(PostgreSQL) ")?.1;
    let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_lines_of_packagers() {
        assert_eq!(
            parse_major("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n"),
            Some(15)
        );
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_major("postgres (PostgreSQL) 17.2\n"), Some(17));
        assert_eq!(parse_major("psql: not found"), None);
    }

    #[test]
    fn the_newest_of_several_versions_comes_first() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["pgsql-9", "pgsql-16", "pgsql-15", "pgsql-old", "other-17"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let found = versions(parent.path(), "pgsql-", "bin");
        let names: Vec<_> = found
            .iter()
            .map(|dir| dir.strip_prefix(parent.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["pgsql-16/bin", "pgsql-15/bin", "pgsql-9/bin"]);
    }

    #[test]
    fn a_folder_that_was_named_is_the_only_one_looked_at() {
        let empty = tempfile::tempdir().unwrap();
        let error = Installation::find(Some(empty.path())).unwrap_err();
        assert!(
            matches!(error, PostgresError::NotInBinDir { .. }),
            "{error}"
        );
    }

    #[test]
    fn the_error_says_how_to_install_in_one_line() {
        let text = PostgresError::NotInstalled.to_string();
        assert_eq!(text.lines().count(), 1);
        for words in [
            "apt install",
            "dnf install",
            "brew install",
            "--database-url",
        ] {
            assert!(text.contains(words), "{words} is missing in: {text}");
        }
    }
}
