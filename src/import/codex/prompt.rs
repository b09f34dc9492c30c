//! Telling a prompt from its repetitions: Codex writes one down up to three times.

use onrecord_core::digest::Hash;

/// Where a prompt was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A message of the conversation with the model.
    Item,
    /// An event for whoever watches.
    Event,
    /// An item of a turn that was completed.
    TurnItem,
}

struct Prompt {
    digest: Hash,
    key: String,
    seen: Vec<Source>,
}

/// The prompts that nothing of the model came after.
#[derive(Default)]
pub(super) struct Prompts(Vec<Prompt>);

impl Prompts {
    /// Prompts that are waited with: more than these are not written before the model answers.
    const KEPT: usize = 32;

    /// Takes a prompt; answers the key of the turn that it repeats, or `None` where it opens its own.
    ///
    /// The first record of a prompt opens its turn. One from elsewhere with the same text, or else the next
    /// from elsewhere before the model answers, is the same prompt again: the event may lack what the
    /// program added for the model, such as the marks around an image.
    pub fn take(&mut self, text: &str, source: Source, key: &str) -> Option<String> {
        let digest = Hash::of(&[text.trim().as_bytes()]);
        let other = |prompt: &Prompt| !prompt.seen.contains(&source);
        let same = |prompt: &Prompt| other(prompt) && prompt.digest == digest;
        let place = self.0.iter().position(same);
        let place = place.or_else(|| self.0.iter().position(other));
        if let Some(prompt) = place.and_then(|place| self.0.get_mut(place)) {
            prompt.seen.push(source);
            return Some(prompt.key.clone());
        }
        if self.0.len() == Self::KEPT {
            self.0.remove(0);
        }
        let key = key.to_owned();
        let seen = vec![source];
        self.0.push(Prompt { digest, key, seen });
        None
    }

    /// The model said or did something.
    pub fn answered(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_opens_one_turn_in_whatever_order_it_is_repeated() {
        let mut prompts = Prompts::default();
        let mut take = |text, source, key| prompts.take(text, source, key);
        assert_eq!(take("go", Source::Event, "1"), None);
        assert_eq!(
            take("stop", Source::Event, "2"),
            None,
            "one more from the same place"
        );
        assert_eq!(take("go\n", Source::Item, "3").as_deref(), Some("1"));
        assert_eq!(take("stop", Source::Item, "4").as_deref(), Some("2"));
        assert_eq!(take("stop", Source::TurnItem, "5").as_deref(), Some("2"));
        assert_eq!(take("stop", Source::Item, "6"), None, "typed again");
    }

    #[test]
    fn what_differs_is_the_same_prompt_until_the_model_answers() {
        let mut prompts = Prompts::default();
        assert_eq!(prompts.take("see <image>", Source::Item, "1"), None);
        assert_eq!(
            prompts.take("see", Source::Event, "2").as_deref(),
            Some("1")
        );
        prompts.answered();
        assert_eq!(prompts.take("see", Source::Event, "3"), None);
        for count in 0..100 {
            prompts.take(&count.to_string(), Source::Event, "k");
        }
        assert_eq!(prompts.0.len(), Prompts::KEPT);
    }
}
