//! The order of a trace: observations are a tree, and each has a beginning and mostly an end.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::time;
use crate::import::request::key_part;

/// Where an observation stands.
pub(super) struct Node {
    /// The key of its first frame.
    pub key: String,
    /// The observation that it is part of, where the file has it.
    pub parent: Option<usize>,
    depth: usize,
    /// When it began, or when its parent did, whichever is later: no part begins before its whole.
    begin: Option<String>,
}

/// What happens in a trace.
pub(super) enum Step {
    /// An observation begins.
    Begin(usize),
    /// It ends.
    End(usize),
    /// The file does not say that it has ended.
    Unfinished(usize),
}

/// The key of the observation with this id.
pub(super) fn key(id: &str) -> String {
    format!("observation/{}", key_part(id))
}

/// Whether an observation is one moment, which has no end.
pub(super) fn is_moment(observation: &Value) -> bool {
    observation.get("type").and_then(Value::as_str) == Some("EVENT")
}

/// The places of all observations, in the order of the file.
pub(super) fn nodes(observations: &[Value]) -> Vec<Node> {
    let text = |value: &Value, member: &str| Some(value.get(member)?.as_str()?.to_owned());
    let mut by_id = HashMap::new();
    let mut nodes = Vec::with_capacity(observations.len());
    for (index, observation) in observations.iter().enumerate() {
        let id = text(observation, "id").filter(|id| !by_id.contains_key(id));
        let key = match &id {
            Some(id) => key(id),
            // Without an id of its own it is named by its place.
            None => format!("item/{}", index + 1),
        };
        by_id.extend(id.map(|id| (id, index)));
        nodes.push(Node {
            key,
            parent: None,
            depth: 0,
            begin: time(observation, "startTime").and_then(|time| time.at),
        });
    }
    for (node, observation) in nodes.iter_mut().zip(observations) {
        let parent = text(observation, "parentObservationId");
        node.parent = parent.and_then(|id| by_id.get(&id).copied());
    }
    descend(&mut nodes);
    nodes
}

/// Gives each node its depth and a beginning that is not before its parent's. A circle of parents is
/// cut where the file closes it.
fn descend(nodes: &mut [Node]) {
    let mut done = vec![false; nodes.len()];
    let mut on_path = vec![false; nodes.len()];
    for start in 0..nodes.len() {
        let mut path = Vec::new();
        let mut next = Some(start);
        while let Some(at) = next.filter(|at| !done[*at]) {
            on_path[at] = true;
            path.push(at);
            next = nodes[at].parent;
            if next.is_some_and(|parent| on_path[parent]) {
                nodes[at].parent = None;
                next = None;
            }
        }
        for at in path.into_iter().rev() {
            if let Some(parent) = nodes[at].parent {
                nodes[at].depth = nodes[parent].depth + 1;
                let begin = nodes[parent].begin.clone();
                nodes[at].begin = begin.max(nodes[at].begin.take());
            }
            (done[at], on_path[at]) = (true, false);
        }
    }
}

/// All that happens, in order. At one moment what began earlier ends first; then what begins does, a
/// parent before its children; last, what also ends in that moment, children before their parent.
pub(super) fn steps(observations: &[Value], nodes: &[Node]) -> VecDeque<Step> {
    let mut steps = Vec::new();
    let mut open = Vec::new();
    for (index, (node, observation)) in nodes.iter().zip(observations).enumerate() {
        let begin = (node.begin.clone(), 1, node.depth, index);
        steps.push((begin, Step::Begin(index)));
        if is_moment(observation) || !observation.is_object() {
            continue;
        }
        if observation.get("endTime").is_none_or(Value::is_null) {
            open.push(Step::Unfinished(index));
            continue;
        }
        let end = time(observation, "endTime").and_then(|time| time.at);
        let rank = if end > node.begin { 0 } else { 2 };
        let end = end.max(node.begin.clone());
        steps.push((
            (end, rank, usize::MAX - node.depth, index),
            Step::End(index),
        ));
    }
    steps.sort_by(|(one, _), (other, _)| one.cmp(other));
    steps
        .into_iter()
        .map(|(_, step)| step)
        .chain(open)
        .collect()
}
