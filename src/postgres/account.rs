//! The user that PostgreSQL runs as.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use super::{PostgresError, environment::Environment};

/// The user that PostgreSQL runs as: this process's own, or for root an unprivileged one, since
/// PostgreSQL refuses to run as root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
    name: String,
    /// Whether processes must be started as another user than this one.
    dropped: bool,
}

impl Account {
    /// Chooses the user for the cluster at `cluster_dir`, which need not be there yet.
    ///
    /// An existing cluster is run by its owner, because PostgreSQL accepts no other.
    pub fn choose(cluster_dir: &Path) -> Result<Account, PostgresError> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let own = Account {
            uid,
            gid,
            name: uid.to_string(),
            dropped: false,
        };
        let owner = fs::metadata(cluster_dir)
            .ok()
            .map(|found| (found.uid(), found.gid()));
        match owner {
            Some((owner, gid)) if uid == 0 && owner != 0 => {
                let name = passwd(|entry| entry.uid == owner).map(|entry| entry.name);
                let name = name.unwrap_or_else(|| owner.to_string());
                Ok(Account {
                    uid: owner,
                    gid,
                    name,
                    dropped: true,
                })
            }
            Some((owner, _)) if uid == 0 || owner != uid => Err(PostgresError::ForeignOwner {
                cluster_dir: cluster_dir.to_owned(),
                owner,
                runs_as: if uid == 0 { unprivileged()?.uid } else { uid },
            }),
            None if uid == 0 => unprivileged(),
            _ => Ok(own),
        }
    }

    /// A command that runs `program` as this user, away from any folder that the user might not
    /// be allowed to enter.
    pub fn command(&self, program: &Path, environment: &Environment) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null());
        environment.apply(&mut command);
        if self.dropped {
            // Setting the user as root also clears the supplementary groups.
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Gives a folder that this process made to this user.
    pub fn give(&self, folder: &Path) -> Result<(), PostgresError> {
        if !self.dropped {
            return Ok(());
        }
        chown(folder, Some(self.uid), Some(self.gid)).map_err(PostgresError::io("chown", folder))
    }

    /// Makes sure that this user may enter the data folder.
    ///
    /// A folder of root's that is closed to everybody (as the server creates it) is opened to this
    /// user's group for passing through, not for listing; what else lies there stays closed by its
    /// own mode. Folders above the data folder are never changed.
    pub fn open_way_to(
        &self,
        data_dir: &Path,
        environment: &Environment,
    ) -> Result<(), PostgresError> {
        if !self.dropped {
            return Ok(());
        }
        let mode = fs::metadata(data_dir).map_err(PostgresError::io("look at", data_dir))?;
        if mode.uid() == 0 && mode.mode() & 0o077 == 0 {
            chown(data_dir, None, Some(self.gid)).map_err(PostgresError::io("chown", data_dir))?;
            fs::set_permissions(data_dir, fs::Permissions::from_mode(0o710))
                .map_err(PostgresError::io("chmod", data_dir))?;
        }
        if self.may_enter(data_dir, environment)? {
            return Ok(());
        }
        let mut way: Vec<&Path> = data_dir.ancestors().collect();
        way.reverse();
        for folder in way {
            if !self.may_enter(folder, environment)? {
                return Err(PostgresError::Unreachable {
                    user: self.name.clone(),
                    folder: folder.to_owned(),
                });
            }
        }
        Ok(()) // Opened a moment ago, by somebody else.
    }

    /// Whether this user may enter a folder. The kernel is asked, as that user, because access
    /// lists can say more than the mode.
    fn may_enter(&self, folder: &Path, environment: &Environment) -> Result<bool, PostgresError> {
        let test = Path::new("test");
        let mut test_command = self.command(test, environment);
        let status = test_command.arg("-x").arg(folder).status();
        match status {
            Ok(status) => Ok(status.success()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && self.dropped => {
                Err(PostgresError::CannotDrop {
                    user: self.name.clone(),
                    source: error,
                })
            }
            Err(error) => Err(PostgresError::io("run", test)(error)),
        }
    }

    /// The user's id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The id of the user's group.
    pub fn gid(&self) -> u32 {
        self.gid
    }
}

/// The user that root's PostgreSQL runs as. `initdb` needs one with an entry in the user database.
fn unprivileged() -> Result<Account, PostgresError> {
    ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| passwd(|entry| entry.name == name && entry.uid != 0))
        .map(|Entry { name, uid, gid }| Account {
            uid,
            gid,
            name,
            dropped: true,
        })
        .ok_or(PostgresError::NoAccount)
}

struct Entry {
    name: String,
    uid: u32,
    gid: u32,
}

/// The first line of `/etc/passwd` that is `wanted`.
fn passwd(wanted: impl Fn(&Entry) -> bool) -> Option<Entry> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    text.lines().filter_map(parse_passwd_line).find(wanted)
}

fn parse_passwd_line(line: &str) -> Option<Entry> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Entry { name, uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_passwd_line() {
        let entry = parse_passwd_line(
            "postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash",
        );
        let entry = entry.unwrap();
        assert_eq!(
            (entry.name.as_str(), entry.uid, entry.gid),
            ("postgres", 101, 104)
        );
        assert!(parse_passwd_line("# a comment").is_none());
        assert!(parse_passwd_line("torn:x:12").is_none());
    }
}
