//! What an answer or a call took: tokens, cost and time, each under the one name that all formats have for it.

use serde_json::{Map, Value};

use super::{FrameRequest, label, labels};

/// Where writers put a count, and its name in `usage`. Of several for one name the first counts.
const COUNTS: [(&str, &str); 43] = [
    ("/input_tokens", "input_tokens"),
    ("/prompt_tokens", "input_tokens"),
    ("/inputTokens", "input_tokens"),
    ("/promptTokenCount", "input_tokens"),
    ("/tokens_sent", "input_tokens"),
    ("/input", "input_tokens"),
    ("/output_tokens", "output_tokens"),
    ("/completion_tokens", "output_tokens"),
    ("/outputTokens", "output_tokens"),
    ("/candidatesTokenCount", "output_tokens"),
    ("/tokens_received", "output_tokens"),
    ("/output", "output_tokens"),
    ("/cache_read_input_tokens", CACHE_READ),
    ("/cached_input_tokens", CACHE_READ),
    ("/input_tokens_cache_read", CACHE_READ),
    ("/cache_read_tokens", CACHE_READ),
    ("/cacheReadTokens", CACHE_READ),
    ("/cachedContentTokenCount", CACHE_READ),
    ("/input_tokens_details/cached_tokens", CACHE_READ),
    ("/prompt_tokens_details/cached_tokens", CACHE_READ),
    ("/input_cache_read", CACHE_READ),
    ("/input_cached_tokens", CACHE_READ),
    ("/cached", CACHE_READ),
    ("/cache/read", CACHE_READ),
    ("/cache_creation_input_tokens", CACHE_CREATION),
    ("/cache_write_input_tokens", CACHE_CREATION),
    ("/input_tokens_cache_write", CACHE_CREATION),
    ("/cache_write_tokens", CACHE_CREATION),
    ("/cacheWriteTokens", CACHE_CREATION),
    ("/cache/write", CACHE_CREATION),
    ("/reasoning_tokens", REASONING),
    ("/reasoning_output_tokens", REASONING),
    ("/thoughtsTokenCount", REASONING),
    ("/output_tokens_details/reasoning_tokens", REASONING),
    ("/completion_tokens_details/reasoning_tokens", REASONING),
    ("/output_reasoning", REASONING),
    ("/reasoning", REASONING),
    ("/thoughts", REASONING),
    ("/toolUsePromptTokenCount", "tool_tokens"),
    ("/tool", "tool_tokens"),
    ("/total_tokens", "total_tokens"),
    ("/totalTokenCount", "total_tokens"),
    ("/total", "total_tokens"),
];
const CACHE_READ: &str = "cache_read_input_tokens";
const CACHE_CREATION: &str = "cache_creation_input_tokens";
const REASONING: &str = "reasoning_tokens";

/// The counts under their names, and what else stands beside them as it is called there.
pub(in crate::import) fn usage(counts: &Value) -> Map<String, Value> {
    let mut usage = Map::new();
    let mut taken = Vec::new();
    for (place, name) in COUNTS {
        let count = counts.pointer(place).filter(|count| count.is_number());
        if let Some(count) = count.and_then(label)
            && !usage.contains_key(name)
        {
            usage.insert(name.to_owned(), count);
            taken.push(&place[1..]);
        }
    }
    for (name, value) in labels(counts) {
        if !taken.contains(&name.as_str()) {
            usage.entry(name).or_insert(value);
        }
    }
    usage
}

impl FrameRequest {
    /// Puts the counts of tokens into the body, where there are any (see [`usage`]).
    pub(in crate::import) fn put_usage(&mut self, counts: Option<&Value>) -> &mut Self {
        let usage = counts.map(usage).unwrap_or_default();
        if !usage.is_empty() {
            self.put("usage", usage);
        }
        self
    }

    /// Puts a time that is counted in seconds into the body, in milliseconds and to the microsecond.
    pub(in crate::import) fn put_millis(
        &mut self,
        member: &str,
        seconds: Option<&Value>,
    ) -> &mut Self {
        let micros = seconds.and_then(Value::as_f64);
        let micros = micros.map(|seconds| (seconds * 1e6).round());
        let millis = micros
            .filter(|micros| *micros >= 0.0)
            .map(|micros| match micros % 1e3 {
                0.0 => Value::from((micros / 1e3) as u64),
                _ => Value::from(micros / 1e3),
            });
        if let Some(millis) = millis.as_ref().and_then(label) {
            self.put(member, millis);
        }
        self
    }

    /// Puts what an answer cost beside its counts.
    pub(in crate::import) fn put_cost(&mut self, cost: Option<&Value>) -> &mut Self {
        let cost = cost.filter(|cost| cost.is_number()).and_then(label);
        if let Some(cost) = cost
            && let Some(usage) = self
                .body
                .entry("usage")
                .or_insert_with(|| Map::new().into())
                .as_object_mut()
        {
            usage.insert("cost_usd".to_owned(), cost);
        }
        self
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests compare values")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_have_one_name_whoever_wrote_them() {
        let same = json!({"input_tokens": 9, "output_tokens": 4, "cache_read_input_tokens": 3,
            "reasoning_tokens": 2, "total_tokens": 13});
        for written in [
            json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2}}),
            json!({"input_tokens": 9, "output_tokens": 4, "total_tokens": 13,
                "cached_input_tokens": 3, "reasoning_output_tokens": 2}),
            json!({"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13,
                "cachedContentTokenCount": 3, "thoughtsTokenCount": 2}),
            json!({"input": 9, "output": 4, "reasoning": 2, "total": 13, "cache": {"read": 3}}),
        ] {
            assert_eq!(Value::from(usage(&written)), same, "{written}");
        }
    }

    #[test]
    fn seconds_become_milliseconds() {
        let of = |seconds: Value| {
            let mut frame = FrameRequest::new("model_result", "k", super::super::Turn::Open);
            frame.put_millis("ms", Some(&seconds));
            frame.body.remove("ms")
        };
        assert_eq!(of(json!(1.82)), Some(json!(1820)));
        assert_eq!(of(json!(0.000_026)), Some(json!(0.026)));
        for none in [json!(-1), json!("1"), json!(1e300), json!(null)] {
            assert_eq!(of(none.clone()), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_count_keeps_its_name_and_nothing_is_put_twice() {
        let written = json!({"input": "many", "prompt_tokens": 3, "input_tokens": 2,
            "service_tier": "standard", "deep": {}});
        let read = json!({"input_tokens": 2, "prompt_tokens": 3, "input": "many",
            "service_tier": "standard"});
        assert_eq!(Value::from(usage(&written)), read);
        assert!(usage(&json!([1, "x"])).is_empty() && usage(&json!(null)).is_empty());
    }
}
