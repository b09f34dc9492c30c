//! The runs of a file and of the children that it names, linked both ways.

use std::path::Path;

use super::super::import::post::{Failure, Sent, send};
use super::entry::Entry;
use super::follower::{Child, Follower};
use super::told::{Told, What};
use super::watcher::Watcher;
use crate::client::Client;
use crate::import::child::{spawned_by, subagent_run};
use crate::import::request::{FrameRequest, Link};

impl Watcher {
    /// Links the runs of children that were named and are there, both ways.
    pub(super) async fn link_children(
        &mut self,
        path: &Path,
        entry: &mut Entry,
    ) -> Result<(), Failure> {
        let Some(follower) = &mut entry.follower else {
            return Ok(());
        };
        follower.look_beside();
        while let Some(place) = follower.children.iter().position(|child| {
            let known = self.entries.get(&child.file);
            known.is_some_and(|known| known.record.run().is_some())
        }) {
            let child = follower.children[place].clone();
            let Some(known) = self.entries.get(&child.file) else {
                break;
            };
            let Some(run) = known.record.run() else { break };
            let there = (run.to_owned(), known.record.opening.clone());
            let untold = link_child(&self.client, follower, &child, there).await?;
            follower.children.swap_remove(place);
            if let Some(known) = self.entries.get_mut(&child.file) {
                known.linked = true;
            }
            for what in untold {
                (self.tell)(Told::new(What::Notice, what).of(path));
            }
        }
        Ok(())
    }
}

/// Posts both links between a child's run and its parent's; answers what could not be.
async fn link_child(
    client: &Client,
    follower: &mut Follower,
    child: &Child,
    (run, opening): (String, String),
) -> Result<Vec<String>, Failure> {
    let call = child.call.as_deref();
    let Some((parent, hash)) = follower.threads.frame_of(client, 0, call).await? else {
        return Ok(Vec::new());
    };
    let link = |rel, run: &str, hash: &str| Link::Frame {
        rel,
        run: run.to_owned(),
        hash: hash.to_owned(),
    };
    let mut untold = Vec::new();
    let mut told = |sent: Sent, run: &str, frame: &FrameRequest| match sent {
        Sent::Recorded => {}
        Sent::Closed => untold.push(format!(
            "run {run} is sealed, so that its link `{}` could not be added",
            frame.key
        )),
        Sent::Conflict => untold.push(format!(
            "run {run} has another link `{}`; it stays",
            frame.key
        )),
    };
    let up = spawned_by(
        call.unwrap_or("session"),
        link("derived_from", &parent, &hash),
    );
    told(send(client, &run, &up).await?, &run, &up);
    // The first of the parent's runs that has the link, or takes it.
    let mut last = None;
    for own in follower.threads.runs(0) {
        let mut down = subagent_run(&child.agent, call, link("caused", &run, &opening));
        if own.run != parent {
            for one in &mut down.links {
                if let Link::Key { rel, .. } = one {
                    *one = link(rel, &parent, &hash);
                }
            }
        }
        let sent = send(client, &own.run, &down).await?;
        last = Some((sent, own.run.clone(), down));
        if sent != Sent::Closed {
            break;
        }
    }
    if let Some((sent, run, down)) = last {
        told(sent, &run, &down);
    }
    Ok(untold)
}
