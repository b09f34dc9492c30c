//! The private folder for the cluster's socket.
//!
//! Whoever can open the socket is the database's superuser, so this folder is the access control:
//! it belongs to the user that runs PostgreSQL and nobody else may enter it. It has a short path,
//! since a socket's path ends at 107 bytes (103 on macOS) and data folders may lie deep.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    },
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::{PostgresError, account::Account, environment::Environment};

/// The number in the socket's name. It is no TCP port: every cluster has a folder of its own, so
/// they can all have the same.
pub(super) const PORT: u16 = 5432;

/// The longest path that a folder may have, in bytes: 103 less `/.s.PGSQL.5432`.
const LONGEST: usize = 103 - "/.s.PGSQL.5432".len();

/// A folder that only the user of PostgreSQL (and root) can enter.
#[derive(Debug)]
pub(super) struct RuntimeDir(PathBuf);

impl RuntimeDir {
    /// Creates the folder for the cluster at `cluster_dir` (a canonical path), or takes over the
    /// one that an earlier start left. The caller holds the data folder's lock and knows that no
    /// postmaster of this cluster is running.
    pub fn prepare(
        cluster_dir: &Path,
        account: &Account,
        environment: &Environment,
    ) -> Result<RuntimeDir, PostgresError> {
        let mut tried = String::new();
        for folder in candidates(cluster_dir, account, environment) {
            if !path_serves(&folder) {
                tried.push_str(&format!(
                    "{} (path too long or unusual); ",
                    folder.display()
                ));
                continue;
            }
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    tried.push_str(&format!("{} ({error}); ", folder.display()));
                    continue;
                }
            }
            make_private(&folder, account)?;
            let prepared = RuntimeDir(folder);
            prepared.remove_sockets();
            return Ok(prepared);
        }
        Err(PostgresError::NoRuntimeDir {
            tried: tried.trim_end_matches("; ").to_owned(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the folder once PostgreSQL has ended. What cannot be removed does no harm: the next
    /// start takes it over.
    pub fn remove(&self) {
        self.remove_sockets();
        let _ = fs::remove_dir(&self.0);
    }

    /// Removes the socket and its lock file, which a killed postmaster leaves behind.
    fn remove_sockets(&self) {
        let socket = self.0.join(format!(".s.PGSQL.{PORT}"));
        let _ = fs::remove_file(&socket);
        let _ = fs::remove_file(socket.with_extension(format!("{PORT}.lock")));
    }
}

/// The places for the folder, best first. Its name is made of the cluster's path, so that a server
/// finds what its predecessor left.
fn candidates(cluster_dir: &Path, account: &Account, environment: &Environment) -> Vec<PathBuf> {
    let digest = Sha256::digest(cluster_dir.as_os_str().as_bytes());
    let tag: String = digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut folders = Vec::new();
    // The folders of root's own session are closed to the user that root drops to.
    if rustix::process::geteuid().as_raw() != 0 {
        folders.extend(
            environment
                .runtime_dirs
                .iter()
                .map(|dir| dir.join(format!("onrecord-{tag}"))),
        );
    }
    folders.push(Path::new("/run").join(format!("onrecord-{tag}")));
    folders.push(Path::new("/tmp").join(format!("onrecord-{}-{tag}", account.uid())));
    folders
}

/// Whether a path is short enough for a socket in it, and plain enough for PostgreSQL's
/// comma-separated setting and for an address.
fn path_serves(folder: &Path) -> bool {
    let bytes = folder.as_os_str().as_bytes();
    bytes.len() <= LONGEST
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/-_.".contains(byte))
}

/// Checks that `folder` is a real folder of this user's (or still root's, when root runs), and
/// closes it to everybody else.
///
/// Everything is done through one handle that follows no symbolic link: in `/tmp` anybody could
/// have put something of that name there, or swap it between a check and its use.
fn make_private(folder: &Path, account: &Account) -> Result<(), PostgresError> {
    let refused = |problem| PostgresError::UnsafeRuntimeDir {
        folder: folder.to_owned(),
        problem,
    };
    let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY;
    let handle: File = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(folder)
        .map_err(|_| refused("it is a symbolic link, no folder, or closed to this user"))?;
    let found = handle
        .metadata()
        .map_err(PostgresError::io("look at", folder))?;
    let made_by_this_process = found.uid() == rustix::process::geteuid().as_raw();
    if found.uid() != account.uid() && !made_by_this_process {
        return Err(refused("it belongs to another user"));
    }
    handle
        .set_permissions(Permissions::from_mode(0o700))
        .map_err(PostgresError::io("chmod", folder))?;
    if found.uid() != account.uid() {
        fchown(&handle, Some(account.uid()), Some(account.gid()))
            .map_err(PostgresError::io("chown", folder))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account::choose(Path::new("/nowhere/postgres")).unwrap()
    }

    #[test]
    fn a_long_cluster_path_gives_a_short_folder() {
        let long = PathBuf::from(format!("/{}", "deep/".repeat(60)));
        for folder in candidates(&long, &account(), &Environment::default()) {
            assert!(path_serves(&folder), "{}", folder.display());
        }
    }

    #[test]
    fn long_or_unusual_places_are_passed_over() {
        assert!(path_serves(Path::new(
            "/run/user/1000/onrecord-0123456789ab"
        )));
        assert!(path_serves(&PathBuf::from(format!(
            "/{}",
            "x".repeat(LONGEST - 1)
        ))));
        assert!(!path_serves(&PathBuf::from(format!(
            "/{}",
            "x".repeat(LONGEST)
        ))));
        assert!(!path_serves(Path::new("/run/a,b")));
        assert!(!path_serves(Path::new("/run/a b")));
    }

    #[test]
    fn symbolic_links_and_files_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("link");
        fs::create_dir(parent.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        for folder in [link, file] {
            let error = make_private(&folder, &account()).unwrap_err();
            assert!(
                matches!(error, PostgresError::UnsafeRuntimeDir { .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn another_users_folder_is_refused() {
        if rustix::process::geteuid().as_raw() != 0 {
            eprintln!("skipped: only root can give a folder to another user");
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(parent.path(), Some(account().uid() + 1), None).unwrap();
        let error = make_private(parent.path(), &account()).unwrap_err();
        assert!(
            matches!(error, PostgresError::UnsafeRuntimeDir { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_loose_folder_of_ours_is_closed_and_given_to_the_user_of_postgres() {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), Permissions::from_mode(0o777)).unwrap();
        make_private(parent.path(), &account()).unwrap();
        let found = fs::metadata(parent.path()).unwrap();
        assert_eq!(
            (found.mode() & 0o777, found.uid()),
            (0o700, account().uid())
        );
    }
}
