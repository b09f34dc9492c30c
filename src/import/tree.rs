//! Records that are parts of each other and have times, but stand in no order.

/// Where a record stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The record that it is part of, or that it follows.
    pub parent: Option<usize>,
    /// How many there are above it.
    pub depth: usize,
    /// Its time as a frame spells it, or its parent's, whichever is later: no part begins before its
    /// whole, whatever the clocks say.
    pub begin: Option<String>,
}

/// Gives each place its depth, and a beginning that is not before its parent's. A circle of parents is
/// cut where the file closes it.
pub(super) fn descend(places: &mut [Place]) {
    let mut done = vec![false; places.len()];
    let mut on_path = vec![false; places.len()];
    for start in 0..places.len() {
        let mut path = Vec::new();
        let mut next = Some(start);
        while let Some(at) = next.filter(|at| !done[*at]) {
            on_path[at] = true;
            path.push(at);
            next = places[at].parent;
            if next.is_some_and(|parent| on_path[parent]) {
                places[at].parent = None;
                next = None;
            }
        }
        for at in path.into_iter().rev() {
            if let Some(parent) = places[at].parent {
                places[at].depth = places[parent].depth + 1;
                let begin = places[parent].begin.clone();
                places[at].begin = begin.max(places[at].begin.take());
            }
            (done[at], on_path[at]) = (true, false);
        }
    }
}
