//! Following files while they are written: every record is on record exactly once, whatever happens.

mod changes;
mod folders;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use onrecord::cli::watch::state::State;
use onrecord::cli::watch::told::{Told, What};
use onrecord::cli::watch::watcher::{Settings, Ticked, Watcher};
use onrecord::client::Client;
use onrecord::import::request::Link;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::check::read;
use crate::fake::{self, Fake, Run};
use crate::{SESSION, fixture};

const NAME: &str = "5f0c9a52-6d1e-4b7a-9c35-0e8d2a4b6c01.jsonl";
const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

/// A folder that is watched, and a server.
struct World {
    fake: Arc<Fake>,
    client: Client,
    folder: TempDir,
    state: TempDir,
    /// The watcher's clock, which begins when the files do.
    now: SystemTime,
    told: Rc<RefCell<Vec<Told>>>,
}

impl World {
    async fn new() -> Self {
        let (fake, client) = fake::start().await;
        let folder = tempfile::tempdir().unwrap();
        let now = fs::metadata(folder.path()).unwrap().modified().unwrap();
        Self {
            fake,
            client,
            folder,
            state: tempfile::tempdir().unwrap(),
            now: now + Duration::from_secs(1),
            told: Rc::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state_file(&self) -> PathBuf {
        self.state.path().join("state/watch.ndjson")
    }

    fn watcher(&self) -> Watcher {
        self.watcher_with(|_| ())
    }

    fn watcher_with(&self, change: impl FnOnce(&mut Settings)) -> Watcher {
        let mut settings = Settings {
            folder: self.folder.path().to_owned(),
            format: None,
            seal_after: Some(HALF_AN_HOUR),
            from_now: false,
        };
        change(&mut settings);
        let told = self.told.clone();
        let state = State::open(&self.state_file(), self.client.base()).unwrap();
        let tell = Box::new(move |one| told.borrow_mut().push(one));
        Watcher::new(self.client.clone(), settings, state, tell)
    }

    /// Lets a second pass.
    async fn tick(&mut self, watcher: &mut Watcher) -> Ticked {
        self.now += Duration::from_secs(1);
        watcher.tick(self.now).await.unwrap()
    }

    /// Lets seconds pass until there is nothing left to do.
    async fn settle(&mut self, watcher: &mut Watcher) {
        let mut idle = 0;
        for _ in 0..1_000 {
            idle = if self.tick(watcher).await.busy == 0 {
                idle + 1
            } else {
                0
            };
            if idle > 2 {
                return;
            }
        }
        panic!("it never ends: {:?}", self.told.borrow());
    }

    /// Lets so much time pass that nobody writes any more.
    async fn rest(&mut self, watcher: &mut Watcher) {
        self.now += HALF_AN_HOUR;
        self.settle(watcher).await;
    }

    fn runs(&self) -> Vec<Run> {
        self.fake.runs.lock().unwrap().clone()
    }

    fn told(&self, what: What) -> usize {
        let told = self.told.borrow();
        told.iter().filter(|told| told.event == what).count()
    }

    /// Every frame that the file gives is in exactly one run of its thread, and no other frame of a
    /// record is.
    fn audit(&self, path: &Path) {
        self.audit_as(path, "");
    }

    /// The same of the content that has run keys with this ending.
    fn audit_as(&self, path: &Path, ending: &str) {
        let read = read(path);
        let runs = self.runs();
        for (opening, frames) in read.openings.iter().zip(&read.frames) {
            let key = format!("{}{ending}", opening.key);
            let continued = format!("{key}/continued/");
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            let of_thread = runs
                .iter()
                .filter(|run| run.frames[0].0 == key || run.frames[0].0.starts_with(&continued));
            for frame in of_thread.flat_map(|run| &run.frames[1..]) {
                if !is_link(&frame.0) {
                    *counts.entry(&frame.0).or_default() += 1;
                }
            }
            let own = frames.iter().filter(|frame| !is_link(&frame.key));
            let expected: BTreeMap<&str, usize> =
                own.map(|frame| (frame.key.as_str(), 1)).collect();
            assert_eq!(counts, expected, "{key}");
        }
    }
}

fn is_link(key: &str) -> bool {
    ["spawned-by/", "subagent/", "replaced/"]
        .iter()
        .any(|link| key.starts_with(link))
}

fn lines() -> Vec<String> {
    let text = fs::read_to_string(fixture(SESSION)).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn append(path: &Path, text: &str) {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

fn append_lines(path: &Path, lines: &[String]) {
    append(path, &(lines.join("\n") + "\n"));
}

fn prompt(number: usize) -> String {
    format!(
        r#"{{"type":"user","uuid":"n{number}","sessionId":"s","message":{{"role":"user","content":"go on, {number}"}}}}"#
    )
}

fn sent(run: &Run, key: &str) -> Value {
    let found = run.frames.iter().find(|frame| frame.0 == key);
    serde_json::from_str(&found.unwrap_or_else(|| panic!("no {key} in {}", run.id)).1).unwrap()
}

#[tokio::test]
async fn each_line_is_on_record_in_the_tick_after_it_was_written() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let mut watcher = world.watcher();
    for (number, line) in lines().iter().enumerate() {
        let (begin, end) = line.split_at(line.len() / 2);
        append(&path, begin);
        world.tick(&mut watcher).await;
        append(&path, end);
        world.tick(&mut watcher).await;
        // Whole, but it might go on until its line feed is there.
        append(&path, "\n");
        world.tick(&mut watcher).await;
        // The first lines do not say yet whose session it is.
        if number > 1 {
            world.audit(&path);
        }
    }
    let posted = world.fake.requests.load(Ordering::SeqCst);
    assert!(posted < 150, "{posted} requests for 37 lines");
    assert!(world.told(What::Appended) > 30);
    assert_eq!(world.told(What::Failed) + world.told(What::Rewritten), 0);
}

#[tokio::test]
async fn a_last_line_that_nobody_ends_is_taken_when_the_file_is_closed() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    append_lines(&path, &lines[..10]);
    append(&path, &lines[10]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    assert!(
        world.runs()[0]
            .frames
            .iter()
            .all(|frame| frame.0 != "line/11")
    );
    world.rest(&mut watcher).await;
    assert!(world.runs()[0].sealed);
    world.audit(&path);
    // Its line feed alone is nothing new.
    append(&path, "\n");
    world.settle(&mut watcher).await;
    assert_eq!(world.runs().len(), 1);
}

#[tokio::test]
async fn children_are_linked_both_ways_and_sealed_before_their_parent() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    append_lines(&path, &lines[..18]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    let folder = path.with_extension("").join("subagents");
    fs::create_dir_all(&folder).unwrap();
    let from = fixture(SESSION).with_extension("").join("subagents");
    for name in ["agent-a51f0e2.jsonl", "agent-b77c310.jsonl"] {
        append(
            &folder.join(name),
            &fs::read_to_string(from.join(name)).unwrap(),
        );
    }
    // New folders are seen.
    world.tick(&mut watcher).await;
    assert_eq!(world.told(What::Following), 3);
    append_lines(&path, &lines[18..]);
    world.rest(&mut watcher).await;
    let runs = world.runs();
    assert!(runs.iter().all(|run| run.sealed));
    let of = |name: &str| {
        let found = runs.iter().find(|run| run.frames[0].0.ends_with(name));
        found.unwrap()
    };
    let parent = of("4b6c01");
    for (child, pointer, from) in [
        (
            of("a51f0e2"),
            "subagent/a51f0e2/line/19/call/1",
            "line/19/call/1",
        ),
        (of("b77c310"), "subagent/b77c310/session", "session"),
    ] {
        let spawned = sent(child, &format!("spawned-by/{from}"));
        assert_eq!(spawned["links"][0]["run"], json!(parent.id));
        let hash = json!(child.frames[0].2);
        assert_eq!(sent(parent, pointer)["links"][0]["hash"], hash);
    }
    world.audit(&path);
    // Parents are sealed last.
    let last = {
        let told = world.told.borrow();
        let mut sealed = told.iter().filter(|told| told.event == What::Sealed);
        sealed.next_back().unwrap().file.clone()
    };
    assert_eq!(last.as_ref(), Some(&path));
    // An import of the same files finds everything.
    let before = world.runs();
    let done = crate::posting::reports(&world.client, &[path], false).await;
    assert!(done.iter().all(|report| report.already == report.frames));
    assert_eq!(world.runs().len(), before.len());
}

#[tokio::test]
async fn sessions_of_long_ago_are_linked_and_sealed_in_one_go() {
    for old_style in [true, false] {
        let mut world = World::new().await;
        let path = world.path(NAME);
        append_lines(&path, &lines());
        let folder = match old_style {
            true => world.folder.path().to_owned(),
            false => path.with_extension("").join("subagents"),
        };
        fs::create_dir_all(&folder).unwrap();
        let from = fixture(SESSION).with_extension("").join("subagents");
        let name = "agent-a51f0e2.jsonl";
        let text = fs::read_to_string(from.join(name)).unwrap();
        append(&folder.join(name), &text);
        let mut watcher = world.watcher();
        world.rest(&mut watcher).await;
        let runs = world.runs();
        assert!(runs.iter().all(|run| run.sealed));
        let child = runs.iter().find(|run| run.frames[0].0.ends_with("a51f0e2"));
        sent(child.unwrap(), "spawned-by/line/19/call/1");
        sent(&runs[0], "subagent/a51f0e2/line/19/call/1");
        assert_eq!(world.told(What::Notice), 0, "{:?}", world.told.borrow());
    }
}

#[tokio::test]
async fn a_killed_watcher_loses_and_doubles_nothing() {
    for last in 1..12 {
        for done in [false, true] {
            let mut world = World::new().await;
            let path = world.path(NAME);
            let lines = lines();
            world.fake.stall_after.store(last, Ordering::SeqCst);
            world.fake.stall_done.store(done, Ordering::SeqCst);
            let mut watcher = world.watcher();
            let mut left = lines.chunks(7);
            let stalled = world.fake.clone();
            // The process is gone in the middle of a request.
            let killed = loop {
                let Some(some) = left.next() else { break false };
                append_lines(&path, some);
                world.now += Duration::from_secs(1);
                tokio::select! {
                    _ = watcher.tick(world.now) => {}
                    () = stalled.stalled.notified() => break true,
                }
            };
            drop(watcher);
            world.fake.stall_after.store(0, Ordering::SeqCst);
            for some in left {
                append_lines(&path, some);
            }
            let mut watcher = world.watcher();
            world.rest(&mut watcher).await;
            world.audit(&path);
            assert!(world.runs().iter().all(|run| run.sealed));
            assert!(killed || last > 5, "{last} requests were too few to end it");
        }
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_not_sent_again_after_a_restart() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    append_lines(&path, &lines[..30]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    drop(watcher);
    // Nothing changed: nothing is asked but whether the server knows the runs.
    let before = world.fake.requests.load(Ordering::SeqCst);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    assert_eq!(world.fake.requests.load(Ordering::SeqCst), before);
    drop(watcher);
    append_lines(&path, &lines[30..]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    let (_, replayed) = watched(&watcher, &path);
    // The two openings, and calls that others link to.
    assert!(replayed <= 5, "{replayed} frames were sent again");
    world.audit(&path);
}

/// Frames that were acknowledged, and those of them that were on record already.
fn watched(watcher: &Watcher, path: &Path) -> (u64, u64) {
    watcher.sent(path).unwrap()
}

#[tokio::test]
async fn a_state_file_that_is_lost_or_broken_anywhere_costs_time_only() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    let mut watcher = world.watcher();
    for some in lines[..30].chunks(5) {
        append_lines(&path, some);
        world.tick(&mut watcher).await;
    }
    drop(watcher);
    let whole = fs::read(world.state_file()).unwrap();
    let cuts = (0..whole.len())
        .step_by(173)
        .map(|cut| whole[..cut].to_vec());
    let mut states: Vec<_> = cuts.collect();
    states.push(b"\0".repeat(4_096));
    states.push(
        String::from_utf8_lossy(&whole)
            .replace("http://", "http://other.")
            .into(),
    );
    let told = String::from_utf8_lossy(&whole).replace(r#""frames":"#, r#""frames":"x"#);
    states.push(told.into());
    for state in states {
        append_lines(&path, &[prompt(1)]);
        fs::write(world.state_file(), state).unwrap();
        let mut watcher = world.watcher();
        world.settle(&mut watcher).await;
        world.audit(&path);
    }
    fs::remove_file(world.state_file()).unwrap();
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    world.audit(&path);
    assert!(world.told(What::State) > 3);
}

#[tokio::test]
async fn a_state_file_of_another_time_of_the_server_is_not_believed() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    append_lines(&path, &lines());
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    drop(watcher);
    world.fake.runs.lock().unwrap().clear();
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    world.audit(&path);
    assert_eq!(world.told(What::State), 1);
}

#[tokio::test]
async fn a_second_watcher_of_the_same_state_is_refused() {
    let world = World::new().await;
    let watcher = world.watcher();
    let second = State::open(&world.state_file(), world.client.base());
    let text = second.err().unwrap().to_string();
    assert!(text.contains("another `onrecord watch`"), "{text}");
    drop(watcher);
    assert!(State::open(&world.state_file(), world.client.base()).is_ok());
}

#[tokio::test]
async fn what_a_server_that_is_away_misses_waits_in_the_file() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    append_lines(&path, &lines[..10]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    world.fake.away.store(true, Ordering::SeqCst);
    for line in &lines[10..] {
        append_lines(&path, std::slice::from_ref(line));
        world.tick(&mut watcher).await;
    }
    assert!(world.tick(&mut watcher).await.away);
    world.fake.away.store(false, Ordering::SeqCst);
    world.rest(&mut watcher).await;
    world.audit(&path);
    assert_eq!((world.told(What::Away), world.told(What::Back)), (1, 1));
    assert!(world.runs()[0].sealed);
}

#[tokio::test]
async fn a_server_is_back_when_it_answers_though_nothing_is_new() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    append_lines(&path, &lines());
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    // It is away when the run is to be sealed, and then when a watcher starts.
    world.fake.away.store(true, Ordering::SeqCst);
    world.now += HALF_AN_HOUR;
    assert!(world.tick(&mut watcher).await.away);
    world.fake.away.store(false, Ordering::SeqCst);
    world.settle(&mut watcher).await;
    assert!(world.runs().iter().all(|run| run.sealed));
    assert_eq!((world.told(What::Away), world.told(What::Back)), (1, 1));
    drop(watcher);
    let mut watcher = world.watcher();
    world.fake.away.store(true, Ordering::SeqCst);
    assert!(world.tick(&mut watcher).await.away);
    world.fake.away.store(false, Ordering::SeqCst);
    world.tick(&mut watcher).await;
    assert!(!world.tick(&mut watcher).await.away);
    assert_eq!((world.told(What::Away), world.told(What::Back)), (2, 2));
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_pause_longer() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let broken = world.path("functions.traj");
    let text = fs::read_to_string(fixture("swe/functions.traj")).unwrap();
    append_lines(&path, &lines());
    fs::write(&broken, &text).unwrap();
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    world.now += Duration::from_secs(1_000);
    world.fake.away.store(true, Ordering::SeqCst);
    append_lines(&path, &[prompt(1)]);
    fs::write(&broken, &text[..text.len() / 2]).unwrap();
    assert!(world.tick(&mut watcher).await.away);
    world.tick(&mut watcher).await;
    world.fake.away.store(false, Ordering::SeqCst);
    world.now -= Duration::from_secs(500);
    world.settle(&mut watcher).await;
    world.audit(&path);
    for _ in 0..5 {
        world.tick(&mut watcher).await;
    }
    assert_eq!(world.told(What::Failed), 1);
    world.now -= Duration::from_secs(400);
    fs::write(&broken, &text).unwrap();
    world.settle(&mut watcher).await;
    assert!(!world.tick(&mut watcher).await.away);
    world.rest(&mut watcher).await;
    assert!(world.runs().iter().all(|run| run.sealed));
}

#[tokio::test]
async fn documents_are_read_anew_and_only_what_is_new_is_sent() {
    let mut world = World::new().await;
    let path = world.path("functions.traj");
    let mut whole: Value =
        serde_json::from_slice(&fs::read(fixture("swe/functions.traj")).unwrap()).unwrap();
    for later in ["history", "info"] {
        whole.as_object_mut().unwrap().remove(later);
    }
    let steps = whole["trajectory"].as_array().unwrap().len();
    assert!(steps > 1);
    let mut watcher = world.watcher();
    for count in 1..=steps {
        let mut part = whole.clone();
        part["trajectory"].as_array_mut().unwrap().truncate(count);
        let text = part.to_string();
        // In the middle of writing, which is not worth a word.
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        world.tick(&mut watcher).await;
        fs::write(&path, &text).unwrap();
        world.settle(&mut watcher).await;
    }
    assert_eq!(world.told(What::Failed) + world.told(What::Rewritten), 0);
    let (_, again) = watcher.sent(&path).unwrap();
    assert_eq!(again, 0, "each frame was sent once");
    let runs = world.runs();
    assert_eq!(runs.len(), 1);
    for frame in read(&path).frames.concat() {
        let found = runs[0].frames.iter().filter(|sent| sent.0 == frame.key);
        assert_eq!(found.count(), 1, "{}", frame.key);
    }
    world.rest(&mut watcher).await;
    assert!(world.runs()[0].sealed);
    // A restart begins anew with a document that changed; what is there is there.
    drop(watcher);
    fs::write(&path, format!("{whole}\n")).unwrap();
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    assert_eq!(world.runs()[0].frames.len(), runs[0].frames.len());
    assert_eq!(world.runs().len(), 1);
}

#[tokio::test]
async fn a_document_that_stays_broken_is_told_of() {
    let mut world = World::new().await;
    let path = world.path("functions.traj");
    let text = fs::read_to_string(fixture("swe/functions.traj")).unwrap();
    fs::write(&path, &text).unwrap();
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    for _ in 0..60 {
        world.tick(&mut watcher).await;
    }
    assert_eq!(world.told(What::Failed), 1);
    fs::write(&path, &text).unwrap();
    for _ in 0..60 {
        world.tick(&mut watcher).await;
    }
    world.rest(&mut watcher).await;
    assert!(world.runs()[0].sealed);
}

#[tokio::test]
async fn what_is_there_can_be_left_alone_until_it_is_written_to() {
    let mut world = World::new().await;
    let (old, new) = (world.path(NAME), world.path("new.jsonl"));
    let lines = lines();
    append_lines(&old, &lines[..20]);
    let mut watcher = world.watcher_with(|settings| settings.from_now = true);
    world.settle(&mut watcher).await;
    append_lines(&new, &[prompt(1)]);
    world.settle(&mut watcher).await;
    assert_eq!(world.runs().len(), 1);
    drop(watcher);
    append_lines(&old, &lines[20..]);
    let mut watcher = world.watcher_with(|settings| settings.from_now = true);
    world.settle(&mut watcher).await;
    world.audit(&old);
    world.audit(&new);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_waited_for_and_nothing_in_it_is_gone() {
    let mut world = World::new().await;
    let sub = world.path("sub");
    let change = |settings: &mut Settings| {
        settings.folder = sub.clone();
        settings.from_now = true;
    };
    let mut watcher = world.watcher_with(change);
    world.settle(&mut watcher).await;
    assert_eq!(world.told(What::Failed), 1);
    fs::create_dir(&sub).unwrap();
    append_lines(&sub.join(NAME), &lines());
    world.settle(&mut watcher).await;
    world.audit(&sub.join(NAME));
    // Such as a file system that is not mounted for a while.
    fs::rename(&sub, world.path("other")).unwrap();
    world.settle(&mut watcher).await;
    assert_eq!(world.told(What::Gone), 0);
    fs::rename(world.path("other"), &sub).unwrap();
    append_lines(&sub.join(NAME), &[prompt(1)]);
    world.settle(&mut watcher).await;
    world.audit(&sub.join(NAME));
    assert_eq!((world.told(What::Failed), world.runs().len()), (2, 2));
}

#[tokio::test]
async fn other_files_are_named_once_and_links_are_not_followed() {
    let mut world = World::new().await;
    let elsewhere = tempfile::tempdir().unwrap();
    append_lines(&elsewhere.path().join(NAME), &lines());
    std::os::unix::fs::symlink(elsewhere.path(), world.path("link")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join(NAME), world.path("link.jsonl")).unwrap();
    let mut watcher = world.watcher_with(|settings| settings.seal_after = None);
    for _ in 0..5 {
        append(&world.path("notes.txt"), "no transcript\n");
        world.settle(&mut watcher).await;
    }
    assert_eq!(world.told(What::Ignored), 1);
    assert!(world.runs().is_empty());
    assert_eq!(watcher.counts(), (0, 1));
    let remembered = fs::read_to_string(world.state_file()).unwrap();
    assert_eq!(remembered.lines().count(), 1, "nothing is on record of it");
    append(&world.path("notes.txt"), &format!("{}\n", prompt(1)));
    world.rest(&mut watcher).await;
    assert_eq!(world.runs().len(), 1);
    assert!(!world.runs()[0].sealed, "never means never");
}

#[tokio::test]
async fn one_format_can_be_asked_for_and_torn_lines_are_told_once() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let copied = world.path("functions.traj");
    fs::copy(fixture("swe/functions.traj"), copied).unwrap();
    append_lines(&path, &lines()[..5]);
    append(&path, &"{\"torn\":\n".repeat(30));
    let only = Some(onrecord::import::Format::ClaudeCode);
    for _ in 0..3 {
        let mut watcher = world.watcher_with(|settings| settings.format = only);
        world.settle(&mut watcher).await;
        assert_eq!(watcher.counts(), (1, 1));
        append_lines(&path, &[prompt(1)]);
        world.settle(&mut watcher).await;
    }
    assert_eq!(world.told(What::Notice), 20);
    world.audit(&path);
}

#[test]
fn links_of_readers_name_keys_or_threads() {
    // What goes on in another run turns the first kind into hashes; there is no third kind to forget.
    let read = read(&fixture(SESSION));
    let links = read.frames.iter().flatten().flat_map(|frame| &frame.links);
    for link in links {
        assert!(matches!(link, Link::Key { .. } | Link::Thread { .. }));
    }
}

#[test]
fn a_name_that_is_no_text_is_told_all_the_same() {
    use std::os::unix::ffi::OsStrExt as _;
    let name = Path::new(std::ffi::OsStr::from_bytes(b"a\xff.jsonl"));
    let told = serde_json::to_value(Told::new(What::Failed, "why").of(name)).unwrap();
    assert_eq!(
        told,
        json!({"event": "failed", "file": "a\u{fffd}.jsonl", "what": "why"})
    );
}
