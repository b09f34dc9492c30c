//! Files that are cut, replaced, renamed or deleted, and sessions that go on after their seal.

use super::*;

#[tokio::test]
async fn a_file_that_was_cut_or_replaced_gets_a_run_of_its_own() {
    for in_place in [true, false] {
        for restart in [true, false] {
            let mut world = World::new().await;
            let path = world.path(NAME);
            let lines = lines();
            append_lines(&path, &lines[..20]);
            let mut watcher = world.watcher();
            world.settle(&mut watcher).await;
            let before = world.runs();
            if restart {
                drop(watcher);
                watcher = {
                    rewrite(&path, &lines, in_place);
                    world.watcher()
                };
            } else {
                rewrite(&path, &lines, in_place);
            }
            world.settle(&mut watcher).await;
            assert_eq!(world.told(What::Rewritten), 1);
            let runs = world.runs();
            for (before, after) in before.iter().zip(&runs) {
                assert_eq!(before.frames, after.frames, "what was recorded stays");
                assert!(after.sealed);
            }
            world.audit_as(&path, "/rewritten/1");
            let new = runs
                .iter()
                .find(|run| run.frames[0].0.ends_with("01/rewritten/1"));
            let back = sent(new.unwrap(), &format!("replaced/{}", runs[0].id));
            assert_eq!(
                back["links"],
                json!([{"rel": "replaced", "run": runs[0].id, "hash": runs[0].frames[0].2}])
            );
            // It goes on there, also when the state is lost.
            append_lines(&path, &[prompt(1)]);
            drop(watcher);
            fs::remove_file(world.state_file()).unwrap();
            let mut watcher = world.watcher();
            world.settle(&mut watcher).await;
            world.audit_as(&path, "/rewritten/1");
        }
    }
}

/// Other content, shorter than what was there and then longer.
fn rewrite(path: &Path, lines: &[String], in_place: bool) {
    let mut other = lines[2..25].to_vec();
    other[3] = other[3].replace("too early", "too late");
    if in_place {
        File::create(path).unwrap();
    } else {
        fs::rename(path, path.with_extension("old")).unwrap();
        fs::remove_file(path.with_extension("old")).unwrap();
    }
    append_lines(path, &other);
}

#[tokio::test]
async fn a_file_that_is_written_anew_with_the_same_beginning_goes_on() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    append_lines(&path, &lines[..20]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    let beside = world.state.path().join("new");
    append_lines(&beside, &lines);
    fs::rename(&beside, &path).unwrap();
    world.settle(&mut watcher).await;
    world.audit(&path);
    assert_eq!(world.told(What::Rewritten), 0);
}

#[tokio::test]
async fn a_renamed_file_is_the_same_and_a_deleted_one_keeps_its_run() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    append_lines(&path, &lines[..20]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    let other = world.path("other.jsonl");
    fs::rename(&path, &other).unwrap();
    append_lines(&other, &lines[20..30]);
    world.settle(&mut watcher).await;
    assert_eq!(world.told(What::Renamed), 1);
    drop(watcher);
    append_lines(&other, &lines[30..]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    assert_eq!(
        world.runs().len(),
        2,
        "the session and the subagent in its file"
    );
    let whole = world.state.path().join(NAME);
    append_lines(&whole, &lines);
    world.audit(&whole);
    // Deleted right after its last line was written.
    append_lines(&other, &[prompt(1)]);
    append_lines(&whole, &[prompt(1)]);
    fs::remove_file(&other).unwrap();
    world.settle(&mut watcher).await;
    assert_eq!(world.told(What::Gone), 1);
    world.audit(&whole);
    assert!(!world.runs()[0].sealed);
    world.rest(&mut watcher).await;
    assert!(world.runs().iter().all(|run| run.sealed));
}

#[tokio::test]
async fn a_session_that_goes_on_after_its_seal_goes_on_in_another_run() {
    for restart in [None, Some(true), Some(false)] {
        let mut world = World::new().await;
        let path = world.path(NAME);
        let lines = lines();
        append_lines(&path, &lines[..20]);
        let mut watcher = world.watcher();
        world.rest(&mut watcher).await;
        let sealed = world.runs();
        assert!(sealed.iter().all(|run| run.sealed));
        for (number, some) in lines[20..].chunks(9).enumerate() {
            if let Some(lost) = restart {
                drop(watcher);
                if lost {
                    fs::remove_file(world.state_file()).unwrap();
                }
                watcher = world.watcher();
            }
            append_lines(&path, some);
            world.settle(&mut watcher).await;
            world.audit(&path);
            if number == 0 {
                world.rest(&mut watcher).await;
                assert!(world.runs().iter().all(|run| run.sealed));
            }
        }
        let runs = world.runs();
        for (before, after) in sealed.iter().zip(&runs) {
            assert_eq!(before.frames, after.frames);
        }
        let first = runs
            .iter()
            .find(|run| run.frames[0].0.ends_with("01/continued/1"));
        let opening: Value = serde_json::from_str(&first.unwrap().frames[0].1).unwrap();
        let head = &runs[0].frames.last().unwrap().2;
        assert_eq!(
            opening["links"],
            json!([{"rel": "derived_from", "run": runs[0].id, "hash": head}])
        );
        assert_eq!(opening["session"]["continues"], json!(runs[0].id));
        let second = runs
            .iter()
            .find(|run| run.frames[0].0.ends_with("01/continued/2"));
        assert!(second.is_some());
    }
}

#[tokio::test]
async fn a_seal_by_somebody_else_is_found_out() {
    let mut world = World::new().await;
    let path = world.path(NAME);
    let lines = lines();
    // A call, whose result comes after the seal.
    append_lines(&path, &lines[..21]);
    let mut watcher = world.watcher();
    world.settle(&mut watcher).await;
    for run in world.fake.runs.lock().unwrap().iter_mut() {
        run.sealed = true;
    }
    append_lines(&path, &lines[21..]);
    world.settle(&mut watcher).await;
    world.audit(&path);
    assert_eq!(world.told(What::Continued), 1);
    // A result after the seal links to its call before it.
    let runs = world.runs();
    let next = runs
        .iter()
        .find(|run| run.frames[0].0.ends_with("01/continued/1"));
    let call = runs[0]
        .frames
        .iter()
        .find(|frame| frame.0 == "line/21/call/1");
    let result = next.unwrap().frames.iter().find_map(|frame| {
        let sent: Value = serde_json::from_str(&frame.1).unwrap();
        (sent["kind"] == "tool_result").then(|| sent["links"][0].clone())
    });
    assert_eq!(
        result,
        Some(json!({"rel": "answers", "run": runs[0].id, "hash": call.unwrap().2}))
    );
}
