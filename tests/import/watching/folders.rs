//! Sessions of several files: what grows is often not the file that names the session.

use super::*;
use crate::files;

/// Writes a file, and the folders above it.
fn put(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn value(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

impl World {
    /// Nothing went wrong, nothing was said twice to be another content, and nobody was bothered.
    fn calm(&self) {
        for what in [What::Failed, What::Rewritten, What::Notice, What::Gone] {
            assert_eq!(self.told(what), 0, "{:?}", self.told.borrow());
        }
    }
}

#[tokio::test]
async fn messages_and_parts_of_opencode_are_taken_though_the_session_s_file_stays() {
    let mut world = World::new().await;
    let from = fixture("opencode/storage");
    let name = "session/proj1/ses_71c0a9f4e001.json";
    let path = world.path(name);
    put(&path, fs::read(from.join(name)).unwrap());
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    let messages = files(&from.join("message/ses_71c0a9f4e001"), ".json");
    for (number, message) in messages.iter().enumerate() {
        let id = message.file_stem().unwrap();
        let to = world
            .path("message/ses_71c0a9f4e001")
            .join(message.file_name().unwrap());
        let whole = value(message);
        let answer = whole["role"] == "assistant";
        let parts = from.join("part").join(id);
        let parts = match parts.is_dir() {
            true => files(&parts, ".json"),
            false => Vec::new(),
        };
        if answer {
            // As it is while the model writes.
            let mut growing = whole.clone();
            growing["time"].as_object_mut().unwrap().remove("completed");
            growing.as_object_mut().unwrap().remove("error");
            put(&to, growing.to_string());
        } else {
            put(&to, whole.to_string());
        }
        for part in parts {
            let name = part.file_name().unwrap();
            put(
                &world.path("part").join(id).join(name),
                fs::read(&part).unwrap(),
            );
            if answer {
                world.settle(&mut watcher).await;
            }
        }
        put(&to, whole.to_string());
        if number % 2 == 1 {
            // Killed before it looks again.
            drop(watcher);
            watcher = world.watcher();
        }
        world.settle(&mut watcher).await;
        world.audit(&path);
    }
    world.calm();
    // A part alone, in the last answer.
    let late = json!({"id": "prt_900", "sessionID": "ses_71c0a9f4e001", "messageID": "msg_006", "type": "text", "text": "late"});
    put(&world.path("part/msg_006/prt_900.json"), late.to_string());
    let last = world.path("message/ses_71c0a9f4e001/msg_006.json");
    let mut whole = value(&last);
    whole["time"]["completed"] = json!(1_772_870_406_900_u64);
    put(&last, whole.to_string());
    world.settle(&mut watcher).await;
    world.audit(&path);
    world.calm();
    assert_eq!(world.runs().len(), 1);
    // Nothing is read where nothing changed, also after a restart.
    drop(watcher);
    let asked = world.fake.requests.load(Ordering::SeqCst);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    assert!(world.fake.requests.load(Ordering::SeqCst) <= asked + 1);
    world.rest(&mut watcher).await;
    assert!(world.runs()[0].sealed);
    // What is named once in a line is not named twice.
    let told = world.told.borrow();
    let ignored = told
        .iter()
        .find(|told| told.event == What::Ignored)
        .unwrap();
    assert_eq!(
        ignored.line().matches(".json: ").count(),
        1,
        "{}",
        ignored.line()
    );
}

#[tokio::test]
async fn a_session_of_long_ago_is_read_once() {
    let mut world = World::new().await;
    let from = fixture("opencode/storage");
    let own = value(&from.join("session/proj1/ses_71c0a9f4e002.json"));
    let message = fs::read(from.join("message/ses_71c0a9f4e002/msg_101.json")).unwrap();
    // More than have readers in memory.
    let many = 80;
    for number in 0..many {
        let id = format!("ses_{number}");
        let mut own = own.clone();
        own["id"] = json!(id);
        own.as_object_mut().unwrap().remove("parentID");
        put(
            &world.path("session/proj1").join(format!("{id}.json")),
            own.to_string(),
        );
        put(
            &world.path("message").join(&id).join("msg_101.json"),
            &message,
        );
    }
    world.now += Duration::from_secs(120);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    assert_eq!(world.runs().len(), many);
    // Each was opened, and sent once.
    let requests = world.fake.requests.load(Ordering::SeqCst);
    assert_eq!(requests, 2 * many as u64);
}

#[tokio::test]
async fn events_of_openhands_are_taken_though_the_state_stays() {
    for (folder, own) in [("shop", "base_state.json"), ("garden", "events/0.json")] {
        let mut world = World::new().await;
        let from = fixture("openhands").join(folder);
        let path = world.path(folder).join(own);
        put(&path, fs::read(from.join(own)).unwrap());
        let mut watcher = world.watcher();
        world.settle(&mut watcher).await;
        for event in files(&from.join("events"), ".json") {
            let to = world
                .path(folder)
                .join("events")
                .join(event.file_name().unwrap());
            let text = fs::read(&event).unwrap();
            // Half of it first.
            put(&to, &text[..text.len() / 2]);
            world.tick(&mut watcher).await;
            put(&to, text);
            world.settle(&mut watcher).await;
        }
        world.audit(&path);
        let told = world.told.borrow().clone();
        let rewritten = told.iter().filter(|told| told.event == What::Rewritten);
        assert_eq!(rewritten.count(), 0, "{told:?}");
        assert_eq!(
            (world.told(What::Failed), world.runs().len()),
            (0, 1),
            "{told:?}"
        );
        world.rest(&mut watcher).await;
        assert!(world.runs()[0].sealed);
    }
}

#[tokio::test]
async fn the_summary_of_a_grok_chat_is_the_one_of_its_end() {
    let mut world = World::new().await;
    let session = "019a7c31-5be2-7d04-91f6-3c8a5e20d706";
    let from = fixture("grok").join(session);
    let (path, summary) = (
        world.path(session).join("chat_history.jsonl"),
        world.path(session).join("summary.json"),
    );
    put(&summary, fs::read(from.join("summary.json")).unwrap());
    put(&path, "");
    let mut watcher = world.watcher();
    for line in fs::read_to_string(from.join("chat_history.jsonl"))
        .unwrap()
        .lines()
    {
        append(&path, &format!("{line}\n"));
        world.tick(&mut watcher).await;
    }
    let mut last = value(&summary);
    last["num_messages"] = json!(99);
    put(&summary, last.to_string());
    world.rest(&mut watcher).await;
    world.audit(&path);
    world.calm();
    assert!(world.runs().iter().all(|run| run.sealed));
}

#[tokio::test]
async fn what_is_still_being_written_is_no_complaint() {
    let mut world = World::new().await;
    let path = world.path("session.json");
    let whole = value(&fixture("gemini/session.json"));
    let messages = whole["messages"].as_array().unwrap().len();
    let mut watcher = world.watcher();
    for count in 1..=messages {
        let mut part = whole.clone();
        let left = part["messages"].as_array_mut().unwrap();
        left.truncate(count);
        // Its calls run when it is written first.
        let mut running = part.clone();
        let last = running["messages"]
            .as_array_mut()
            .unwrap()
            .last_mut()
            .unwrap();
        for call in last
            .get_mut("toolCalls")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            call["status"] = json!("executing");
            call.as_object_mut().unwrap().remove("result");
        }
        for content in [running, part] {
            // As a program writes that wants its file to be whole at any moment.
            let beside = world.path("session.json.tmp");
            put(&beside, content.to_string());
            fs::rename(&beside, &path).unwrap();
            world.settle(&mut watcher).await;
        }
    }
    world.calm();
    assert_eq!(world.runs().len(), 1);
    for frame in read(&path).frames.concat() {
        let found = world.runs()[0]
            .frames
            .iter()
            .filter(|sent| sent.0 == frame.key)
            .count();
        assert_eq!(found, 1, "{}", frame.key);
    }
}

#[tokio::test]
async fn another_session_s_document_under_the_same_name_is_no_part_of_the_first() {
    for restart in [false, true] {
        let mut world = World::new().await;
        let path = world.path("trace.json");
        let text = fs::read_to_string(fixture("langfuse/garden.trace.json")).unwrap();
        let id = value(&fixture("langfuse/garden.trace.json"));
        let id = id
            .pointer("/trace/id")
            .or(id.get("id"))
            .unwrap()
            .as_str()
            .unwrap()
            .to_owned();
        put(&path, &text);
        let mut watcher = world.watcher();
        world.settle(&mut watcher).await;
        let first = world.runs();
        if restart {
            drop(watcher);
            watcher = world.watcher();
        }
        // The observations of another trace have other ids too.
        let text = text.replace("\"id\": \"", "\"id\": \"z");
        put(&path, text.replace(&format!("\"z{id}"), "\"another"));
        world.settle(&mut watcher).await;
        let runs = world.runs();
        assert_eq!(
            (first.len(), runs.len()),
            (1, 2),
            "{:?}",
            world.told.borrow()
        );
        assert_eq!(runs[0].frames, first[0].frames);
        assert!(runs[0].sealed);
        assert_eq!(world.told(What::Rewritten), 1);
        world.audit_as(&path, "/rewritten/1");
        world.rest(&mut watcher).await;
        assert!(world.runs().iter().all(|run| run.sealed));
    }
}

#[tokio::test]
async fn a_summary_that_comes_late_is_no_other_session() {
    let mut world = World::new().await;
    let session = "019a7c31-5be2-7d04-91f6-3c8a5e20d706";
    let from = fixture("grok").join(session);
    let (path, summary) = (
        world.path(session).join("chat_history.jsonl"),
        world.path(session).join("summary.json"),
    );
    let text = fs::read_to_string(from.join("chat_history.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    put(&path, lines[..5].join("\n") + "\n");
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    put(&summary, fs::read(from.join("summary.json")).unwrap());
    drop(watcher);
    let mut watcher = world.watcher();
    append(&path, &(lines[5..].join("\n") + "\n"));
    world.settle(&mut watcher).await;
    world.rest(&mut watcher).await;
    world.audit(&path);
    world.calm();
    assert_eq!(world.runs().len(), 1);
    assert!(world.runs()[0].sealed);
}

#[tokio::test]
async fn a_session_that_is_written_to_while_it_is_read_is_read_again() {
    let mut world = World::new().await;
    let from = fixture("opencode/storage");
    for file in files(&from, ".json") {
        let to = world.path("").join(file.strip_prefix(&from).unwrap());
        put(&to, fs::read(&file).unwrap());
    }
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    let before = world.runs();
    // Its first message is written anew, and empty for a moment, just when the session is read: the server
    // does that while the transcript before it is sent.
    let first = world.path("message/ses_71c0a9f4e001/msg_001.json");
    let text = fs::read(&first).unwrap();
    let path = world.path("session/proj1/ses_71c0a9f4e001.json");
    let own = fs::read_to_string(&path).unwrap();
    append_lines(&world.path("0.jsonl"), &[prompt(1)]);
    put(&path, format!("{own}\n"));
    let torn = first.clone();
    let meanwhile = move || fs::write(&torn, "").unwrap();
    *world.fake.meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
    world.tick(&mut watcher).await;
    put(&first, text);
    world.settle(&mut watcher).await;
    world.audit(&path);
    world.calm();
    for (before, after) in before.iter().zip(world.runs()) {
        assert_eq!(before.frames, after.frames);
    }
}

#[tokio::test]
async fn a_session_of_many_messages_is_taken_whole() {
    let mut world = World::new().await;
    let from = fixture("opencode/storage");
    let name = "session/proj1/ses_71c0a9f4e001.json";
    let path = world.path(name);
    put(&path, fs::read(from.join(name)).unwrap());
    let folder = world.path("message/ses_71c0a9f4e001");
    let mut message = value(&from.join("message/ses_71c0a9f4e001/msg_003.json"));
    for number in 0..450 {
        let id = format!("msg_{number:03}");
        message["id"] = json!(id);
        put(&folder.join(format!("{id}.json")), message.to_string());
    }
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    world.audit(&path);
    world.calm();
    assert_eq!(world.runs().len(), 1);
}
