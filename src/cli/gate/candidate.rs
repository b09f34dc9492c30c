//! What a gate judged, as an exact digest.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::GateArgs;

/// The argument that stands for the commit that is checked out.
const HEAD: &str = "HEAD";

/// The candidate that an argument names, in the one spelling that verdicts are compared in.
pub(super) fn named(text: &str) -> anyhow::Result<String> {
    if text == HEAD {
        return head(Path::new("."));
    }
    let lower = text.to_ascii_lowercase();
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let exact = match lower.strip_prefix("sha256:") {
        Some(digits) => digits.len() == 64 && is_hex(digits),
        None => matches!(lower.len(), 40 | 64) && is_hex(&lower),
    };
    ensure!(
        exact,
        "`{text}` names no one thing: the candidate is a git commit of 40 or 64 hex digits, `sha256:` and \
         64 hex digits, or HEAD"
    );
    Ok(lower)
}

/// Whether what `HEAD` or a file was before a command is what it is after it. New files in the tree are
/// what the command made.
///
/// # Errors
/// It is something else, or cannot be had any more.
pub(super) fn unchanged(args: &GateArgs, candidate: &str) -> anyhow::Result<()> {
    let folder = Path::new(".");
    let now = match (args.candidate.as_deref(), &args.candidate_file) {
        (Some(HEAD), _) => {
            let changes = changes(folder, "--untracked-files=no")?;
            if let Some(first) = changes.lines().next() {
                let first = onrecord_verify::escape(first);
                bail!("files of the commit changed while the command ran, such as `{first}`");
            }
            commit(folder)?
        }
        (None, Some(path)) => of_file(path)?,
        _ => return Ok(()),
    };
    ensure!(
        now == candidate,
        "the candidate became {now} while the command ran"
    );
    Ok(())
}

/// The SHA-256 of a file.
pub(super) fn of_file(path: &Path) -> anyhow::Result<String> {
    let name = || path.display().to_string();
    let mut file = File::open(path).with_context(name)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut buffer).with_context(name)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    let digits = hash.finalize();
    Ok(digits.iter().fold("sha256:".to_owned(), |text, byte| {
        format!("{text}{byte:02x}")
    }))
}

/// The commit that is checked out. A tree that differs from it is not that commit.
fn head(folder: &Path) -> anyhow::Result<String> {
    ensure!(
        git(folder, None, &["rev-parse", "--is-inside-work-tree"])
            .context(NO_HEAD)?
            .trim()
            == "true",
        "HEAD is not what is here: the folder is not in the tree that git looks at"
    );
    let commit = commit(folder)?;
    let changes = changes(folder, "--untracked-files=normal")?;
    if let Some(first) = changes.lines().next() {
        bail!(
            "HEAD is not what is here: the tree has {} uncommitted changes, such as `{}`; commit them, \
             have git ignore them, or name the candidate by its digest",
            changes.lines().count(),
            onrecord_verify::escape(first)
        );
    }
    Ok(commit)
}

/// Where HEAD names nothing.
const NO_HEAD: &str =
    "there is no HEAD here: give the candidate by its digest, or run it in its repository";

fn commit(folder: &Path) -> anyhow::Result<String> {
    let commit = git(folder, None, &["rev-parse", "--verify", "HEAD^{commit}"]).context(NO_HEAD)?;
    named(commit.trim())
}

/// In what the tree differs from the commit, by the content of every file: the repository's own index
/// may be told not to look at some.
fn changes(folder: &Path, untracked: &str) -> anyhow::Result<String> {
    let place = tempfile::tempdir().context("there is no folder for an index")?;
    let index = place.path().join("index");
    git(folder, Some(&index), &["read-tree", "HEAD"])?;
    let status = [
        "status",
        "--porcelain",
        "--ignore-submodules=none",
        untracked,
    ];
    git(folder, Some(&index), &status)
}

/// Runs git. What is judged may have configured the repository: nothing of it is run, as far as git
/// lets itself be told so, and the token is not there for it.
fn git(folder: &Path, index: Option<&Path>, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .args(["--no-replace-objects", "--no-optional-locks"])
        .args([
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
        ])
        .args(arguments)
        .env_remove("ONRECORD_TOKEN");
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let done = command
        .output()
        .context("git cannot be run, which is needed for HEAD")?;
    ensure!(
        done.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_one_thing_is_a_candidate() {
        let (git, long) = ("a".repeat(40), "0".repeat(64));
        assert_eq!(named(&git).unwrap(), git);
        assert_eq!(named(&long).unwrap(), long);
        assert_eq!(
            named(&format!("sha256:{long}")).unwrap(),
            format!("sha256:{long}")
        );
        assert_eq!(named(&"AB".repeat(20)).unwrap(), "ab".repeat(20));
        for none in [
            "",
            "main",
            "v1.2.0",
            "abc1234",
            &"g".repeat(40),
            &"a".repeat(41),
            "sha256:",
            "sha256:abc",
            &format!("sha512:{long}"),
            &format!(" {git}"),
            &format!("sha256:{git}"),
        ] {
            assert!(named(none).is_err(), "{none}");
        }
    }

    /// A repository with one commit of one file.
    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| git(folder.path(), None, arguments).unwrap();
        run(&["init", "-q"]);
        std::fs::write(folder.path().join("a"), "one").unwrap();
        run(&["add", "a"]);
        let who = ["-c", "user.name=a", "-c", "user.email=a@example"];
        run(&[&who[..], &["commit", "-q", "-m", "first"]].concat());
        folder
    }

    #[test]
    fn a_changed_tree_is_no_commit() {
        let folder = repository();
        assert_eq!(head(folder.path()).unwrap().len(), 40);
        std::fs::write(folder.path().join("b"), "new").unwrap();
        let error = head(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("1 uncommitted changes") && error.contains("?? b"),
            "{error}"
        );
    }

    #[test]
    fn a_change_that_git_is_told_not_to_see_is_seen() {
        let elsewhere = repository();
        let clean = elsewhere.path().display().to_string();
        for (hidden, arguments) in [
            ("a", &["update-index", "--assume-unchanged", "a"][..]),
            ("a", &["update-index", "--skip-worktree", "a"]),
            ("a", &["config", "core.worktree", &clean]),
            ("b", &["config", "status.showUntrackedFiles", "no"]),
        ] {
            let folder = repository();
            git(folder.path(), None, arguments).unwrap();
            std::fs::write(folder.path().join(hidden), "two").unwrap();
            assert!(head(folder.path()).is_err(), "{arguments:?}");
        }
        // Another commit in the place of this one.
        let folder = repository();
        let run = |arguments: &[&str]| git(folder.path(), None, arguments).unwrap();
        std::fs::write(folder.path().join("a"), "two").unwrap();
        let who = ["-c", "user.name=a", "-c", "user.email=a@example"];
        run(&[&who[..], &["commit", "-q", "-a", "-m", "second"]].concat());
        run(&["replace", "HEAD~1", "HEAD"]);
        run(&["update-ref", "HEAD", "HEAD~1"]);
        assert!(head(folder.path()).is_err());
    }

    #[test]
    fn nothing_of_the_repository_is_run() {
        let folder = repository();
        let seen = folder.path().join(".git/seen");
        let script = folder.path().join(".git/spy");
        std::fs::write(&script, format!("#!/bin/sh\ntouch {}\n", seen.display())).unwrap();
        let mut mode = std::fs::metadata(&script).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        let script = script.display().to_string();
        git(folder.path(), None, &["config", "core.fsmonitor", &script]).unwrap();
        assert!(head(folder.path()).is_ok());
        assert!(!seen.exists());
    }

    #[test]
    fn a_file_is_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("artefact");
        std::fs::write(&path, "abc").unwrap();
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_file(&path).unwrap(), digest);
        assert!(of_file(&folder.path().join("none")).is_err());
    }
}
