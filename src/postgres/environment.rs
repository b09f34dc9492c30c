//! The environment variables that this room reads, in one place.

use std::{ffi::OsString, path::PathBuf, process::Command};

/// What the environment says about programs and folders.
#[derive(Debug, Default)]
pub(super) struct Environment {
    /// `PATH`, unsplit.
    pub path: Option<OsString>,
    /// `LD_LIBRARY_PATH`: a PostgreSQL outside the system's folders may need it to load.
    pub library_path: Option<OsString>,
    /// Folders for sockets that belong to this user alone, best first: systemd's for the unit
    /// (`RUNTIME_DIRECTORY`), then the login session's (`XDG_RUNTIME_DIR`).
    pub runtime_dirs: Vec<PathBuf>,
}

impl Environment {
    /// Reads the process's environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one home of this room's look at the environment; none of it is configuration"
    )]
    pub fn read() -> Environment {
        let unit = std::env::var_os("RUNTIME_DIRECTORY");
        let session = std::env::var_os("XDG_RUNTIME_DIR");
        Environment {
            path: std::env::var_os("PATH"),
            library_path: std::env::var_os("LD_LIBRARY_PATH"),
            // systemd joins several folders with colons; any of them serves, so the first does.
            runtime_dirs: unit
                .iter()
                .filter_map(|list| std::env::split_paths(list).next())
                .chain(session.map(PathBuf::from))
                .filter(|dir| dir.is_absolute())
                .collect(),
        }
    }

    /// Gives `command` a clean environment.
    ///
    /// Nothing else is inherited: `PG…` variables would change what PostgreSQL does, and its
    /// processes have no business knowing the server's tokens and addresses.
    pub fn apply(&self, command: &mut Command) {
        command.env_clear();
        // Messages stay in English, because `cluster` looks for one of them.
        command.env("LC_ALL", "C").env("TZ", "UTC");
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        if let Some(path) = &self.library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
    }
}
