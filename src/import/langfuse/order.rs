//! The order of a trace: observations are a tree, and each has a beginning and mostly an end.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::time;
use crate::import::request::key_part;
use crate::import::tree::{Place, descend};

/// Where an observation stands.
pub(super) struct Node {
    /// The key of its first frame.
    pub key: String,
    /// Its parent is the observation that it is part of, where the file has it.
    pub place: Place,
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
    let mut keys = Vec::with_capacity(observations.len());
    for (index, observation) in observations.iter().enumerate() {
        let id = text(observation, "id").filter(|id| !by_id.contains_key(id));
        keys.push(match &id {
            Some(id) => key(id),
            // Without an id of its own it is named by its place.
            None => format!("item/{}", index + 1),
        });
        by_id.extend(id.map(|id| (id, index)));
    }
    let place = |observation: &Value| Place {
        parent: text(observation, "parentObservationId").and_then(|id| by_id.get(&id).copied()),
        depth: 0,
        begin: time(observation, "startTime").and_then(|time| time.at),
    };
    let mut places: Vec<_> = observations.iter().map(place).collect();
    descend(&mut places);
    let node = |(key, place)| Node { key, place };
    keys.into_iter().zip(places).map(node).collect()
}

/// All that happens, in order. At one moment what began earlier ends first; then what begins does, a
/// parent before its children; last, what also ends in that moment, children before their parent.
pub(super) fn steps(observations: &[Value], nodes: &[Node]) -> VecDeque<Step> {
    let mut steps = Vec::new();
    let mut open = Vec::new();
    for (index, (node, observation)) in nodes.iter().zip(observations).enumerate() {
        let begin = (node.place.begin.clone(), 1, node.place.depth, index);
        steps.push((begin, Step::Begin(index)));
        if is_moment(observation) || !observation.is_object() {
            continue;
        }
        if observation.get("endTime").is_none_or(Value::is_null) {
            open.push(Step::Unfinished(index));
            continue;
        }
        let end = time(observation, "endTime").and_then(|time| time.at);
        let rank = if end > node.place.begin { 0 } else { 2 };
        let end = end.max(node.place.begin.clone());
        steps.push((
            (end, rank, usize::MAX - node.place.depth, index),
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
