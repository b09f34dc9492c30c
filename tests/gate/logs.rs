//! Logs: `go test`, cargo and TAP.

use crate::{line, line_with, reading};
use onrecord::gate::{Format, Options};

fn event(action: &str, test: &str) -> String {
    let test = if test.is_empty() {
        String::new()
    } else {
        format!(",\"Test\":\"{test}\"")
    };
    format!("{{\"Action\":\"{action}\",\"Package\":\"p\"{test}}}\n")
}

fn events(events: &[(&str, &str)]) -> String {
    events
        .iter()
        .map(|(action, test)| event(action, test))
        .collect()
}

#[test]
fn go_events() {
    for (log, said) in [
        (
            &[("run", "A"), ("pass", "A"), ("pass", "")][..],
            "go-json pass 1/0/0/0",
        ),
        (
            &[("run", "A"), ("fail", "A"), ("fail", "")],
            "go-json fail 0/1/0/0",
        ),
        (
            &[("run", "A"), ("skip", "A"), ("pass", "")],
            "go-json skipped 0/0/0/1 all_skipped",
        ),
        // Broken off: by a panic, and by whoever kept the log.
        (&[("run", "A"), ("fail", "")], "go-json fail 0/0/1/0"),
        (&[("run", "A"), ("pass", "")], "go-json fail 0/0/1/0"),
        (
            &[("run", "A"), ("pass", "A")],
            "go-json error 1/0/0/0 truncated",
        ),
        (&[("run", "A")], "go-json error 0/0/0/0 truncated"),
        (&[("start", "")], "go-json error 0/0/0/0 truncated"),
        // A package that fails beside its tests, or has none.
        (
            &[("run", "A"), ("pass", "A"), ("fail", "")],
            "go-json fail 1/0/1/0",
        ),
        (
            &[("start", ""), ("skip", "")],
            "go-json error 0/0/0/0 no_tests",
        ),
        (
            &[("start", ""), ("pass", "")],
            "go-json error 0/0/0/0 no_tests",
        ),
        (
            &[("build-output", ""), ("build-fail", "")],
            "go-json fail 0/0/1/0",
        ),
        (
            &[("explode", "A"), ("pass", "")],
            "go-json error 0/0/0/0 no_tests",
        ),
    ] {
        assert_eq!(line(events(log)), said, "{log:?}");
    }
}

#[test]
fn go_events_among_other_lines() {
    let run = events(&[("run", "A"), ("pass", "A"), ("pass", "")]);
    for log in [
        format!("go: downloading x\n{run}"),
        run.replace('\n', "\r\n"),
        run.replace(
            '\n',
            "\n{\"Action\": 5}\n{\"no\":\"action\"}\n{broken\n|||\n",
        ),
        format!("\u{feff}{run}"),
        // A test prints something about a report of another kind.
        format!(
            "{{\"Action\":\"output\",\"Package\":\"p\",\"Output\":\"$schema of sarif\"}}\n{run}"
        ),
        run.replace("{\"A", "2026-01-02T03:04:05.1234567Z {\"A"),
    ] {
        assert_eq!(line(&log), "go-json pass 1/0/0/0", "{log}");
    }
    let output = "{\"Action\":\"run\",\"Package\":\"p\",\"Test\":\"A\"}\n\
        {\"Action\":\"output\",\"Package\":\"p\",\"Test\":\"A\",\"Output\":\"=== RUN A\\n\"}\n\
        {\"Action\":\"output\",\"Package\":\"p\",\"Test\":\"A\",\"Output\":\"got 1\\n\"}\n\
        {\"Time\":\"2026-01-01T00:00:00Z\",\"Action\":\"fail\",\"Package\":\"p\",\"Test\":\"A\"}\n\
        {\"Time\":\"2026-01-01T00:00:02.5Z\",\"Action\":\"fail\",\"Package\":\"p\"}\n";
    let found = reading(output);
    assert_eq!(found.failures[0].name, "p A");
    assert_eq!(found.failures[0].message.as_deref(), Some("got 1"));
    assert_eq!(found.duration_ms, Some(2_500));
}

#[test]
fn go_lines() {
    for (log, said) in [
        (
            "=== RUN   A\n--- PASS: A (0.00s)\nPASS\nok  \tp\t0.1s\n",
            "go-test pass 1/0/0/0",
        ),
        (
            "=== RUN   A\n    --- FAIL: A/b (0.00s)\n--- FAIL: A (0.00s)\nFAIL\nFAIL\tp\t0.1s\nFAIL\n",
            "go-test fail 0/2/0/0",
        ),
        (
            "=== RUN   A\npanic: x\n\ngoroutine 1\nFAIL\tp\t0.1s\nFAIL\n",
            "go-test fail 0/0/1/0 unended",
        ),
        (
            "=== RUN   A\n--- PASS: A (0.00s)\nFAIL\tp\t0.1s\n",
            "go-test fail 1/0/1/0",
        ),
        (
            "=== RUN   A\n--- PASS: A (0.00s)\n",
            "go-test error 1/0/0/0 truncated",
        ),
        ("=== RUN   A\n", "go-test error 0/0/0/0 truncated"),
        ("FAIL\tp [build failed]\n", "go-test fail 0/0/1/0"),
        // It failed without a test, also where tests are not named.
        ("FAIL\tp\t0.012s\nFAIL\n", "go-test fail 0/0/1/0"),
        ("FAIL\tsome words\n", "unknown"),
        // What a test prints without an end of the line stands before its result.
        (
            "=== RUN   A\nhello--- PASS: A (0.00s)\n=== RUN   B\nhi=== RUN   B/c\n    --- PASS: B/c (0.00s)\n\
             --- PASS: B (0.00s)\nPASS\nok  \tp\t0.1s\n",
            "go-test pass 3/0/0/0",
        ),
        (
            "=== RUN   A\n    a_test.go:3: got --- FAIL: Inner (0.00s)\n--- PASS: A (0.00s)\nok  \tp\t0.1s\n",
            "go-test pass 1/0/0/0",
        ),
        // Without -v there are no tests to count.
        ("ok  \tp\t0.1s\n", "unknown"),
    ] {
        assert_eq!(line(log), said, "{log}");
    }
}

const OK: &str = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.50s\n";

#[test]
fn cargo_summaries() {
    let failed = "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    for (log, said) in [
        (format!("running 3 tests\n{OK}"), "cargo pass 2/0/0/1"),
        (format!("running 3 tests\n{OK}\nrunning 2 tests\ntest a ... FAILED\n{failed}error: test failed\n"), "cargo fail 3/1/0/1"),
        (format!("running 3 tests\n{OK}\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out\n"), "cargo pass 2/0/0/1"),
        ("running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n".to_owned(), "cargo error 0/0/0/0 no_tests"),
        // Broken off: aborted, and the next binary began.
        ("running 3 tests\ntest a ... ok\n".to_owned(), "cargo error 0/0/0/0 truncated"),
        (format!("running 3 tests\nrunning 3 tests\n{OK}"), "cargo error 2/0/0/1 truncated"),
        (format!("running 3 tests\n{OK}error: could not compile `x` (lib test) due to 1 previous error\n"), "cargo error 2/0/0/1 did_not_compile"),
        ("error: could not compile `x` (lib) due to 2 previous errors\n".to_owned(), "cargo error 0/0/0/0 did_not_compile"),
        (format!("running 4 tests\n{OK}"), "cargo error 2/0/0/1 totals_differ"),
        // A test program without libtest's harness says nothing itself.
        (format!("running 3 tests\n{OK}error: test failed, to rerun pass `--test custom`\n"), "cargo fail 2/0/0/1 run_failed"),
        ("test result: FAILED. 1 passed; 18446744073709551615 failed; 18446744073709551615 failed\n".to_owned(), "cargo fail 1/18446744073709551615/0/0"),
        ("error: doctest failed, to rerun pass `--doc`\n".to_owned(), "cargo fail 0/0/0/0 run_failed"),
        ("running 1 test\ntest result: FAILED. 1 passed; 0 failed; 0 ignored; 0 measured\n".to_owned(), "cargo fail 1/0/0/0 run_failed"),
        (format!("\u{1b}[0mrunning 3 tests\r\n{}", OK.replace("ok", "\u{1b}[32mok\u{1b}[0m")), "cargo pass 2/0/0/1"),
        ("test result: unclear\nrunning late\n".to_owned(), "unknown"),
    ] {
        assert_eq!(line(&log), said, "{log}");
    }
    let found = reading(format!("running 2 tests\ntest a::b ... FAILED\n{failed}"));
    assert_eq!(
        (found.failures[0].name.as_str(), found.duration_ms),
        ("a::b", Some(0))
    );
}

#[test]
fn nextest_summaries() {
    for (log, said) in [
        (
            "     Summary [   0.05s] 3 tests run: 3 passed (1 slow, 1 flaky), 2 skipped\n",
            "cargo pass 3/0/0/2",
        ),
        (
            "     Summary [   0.05s] 1 test run: 1 passed, 0 skipped\n",
            "cargo pass 1/0/0/0",
        ),
        (
            "        FAIL [   0.005s] x::y a::b\n     Summary [   0.05s] 4 tests run: 1 passed, 1 failed, 1 timed out, 1 exec failed, 0 skipped\n",
            "cargo fail 1/1/2/0",
        ),
        (
            "     Summary [   0.05s] 2/9 tests run: 2 passed, 0 skipped\n",
            "cargo error 2/0/0/0 cancelled",
        ),
        (
            "     Summary [   0.05s] 3 tests run: 2 passed, 0 skipped\n",
            "cargo error 2/0/0/0 totals_differ",
        ),
        (
            "     Summary [   0.05s] 0 tests run: 0 passed, 4 skipped\n",
            "cargo skipped 0/0/0/4 all_skipped",
        ),
        (
            "Summary [ 1s] 1 test run: 18446744073709551615 passed, 18446744073709551615 failed\n",
            "cargo fail 18446744073709551615/18446744073709551615/0/0 totals_differ",
        ),
        ("error: no tests to run\n", "cargo error 0/0/0/0 no_tests"),
        // What a failed test printed is shown, and a summary of it alone among it.
        (
            "    Starting 2 tests across 1 binary\n        FAIL [   0.173s] (2/2) x b\n  stdout ---\n\n    running 1 test\n\
                 test b ... FAILED\n    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 1 filtered out\n\
                 Summary [   0.1s] 2 tests run: 1 passed, 1 failed, 0 skipped\n        FAIL [   0.173s] (2/2) x b\n\
             error: test run failed\n",
            "cargo fail 1/1/0/0",
        ),
        (
            "    Starting 2 tests across 1 binary\n        PASS [   0.015s] (1/2) x a\n",
            "cargo error 0/0/0/0 truncated",
        ),
        ("Starting 2 engines\nStarting up\n", "unknown"),
        (
            "     Summary [   0.05s] some tests run: 2 passed\n",
            "unknown",
        ),
    ] {
        assert_eq!(line(log), said, "{log}");
    }
}

#[test]
fn tap_streams() {
    for (log, said) in [
        (
            "TAP version 14\n1..2\nok 1 - a\nok 2 - b\n",
            "tap pass 2/0/0/0",
        ),
        (
            "1..2\nok 1\nnot ok 2 - b\n  ---\n  message: ok 3\n  ...\n",
            "tap fail 1/1/0/0",
        ),
        ("ok 1\nok 2\n1..2\n", "tap pass 2/0/0/0"),
        (
            "1..3\nok 1 # SKIP no network\nnot ok 2 # TODO later\nok 3 # todo done already\n",
            "tap pass 1/0/0/2",
        ),
        ("1..1\nok 1 - a \\# SKIP is its name\n", "tap pass 1/0/0/0"),
        ("1..1\nnot ok 1 # skip\n", "tap skipped 0/0/0/1 all_skipped"),
        // A `#` that is no directive, and one behind it that is.
        ("1..1\nnot ok 1 - parses #TODO\n", "tap fail 0/1/0/0"),
        ("1..1\nnot ok 1 - # todos are counted\n", "tap fail 0/1/0/0"),
        (
            "1..2\nok 1 - bug #12 # SKIP no net\nnot ok 2 - bug #3 # TODO\n",
            "tap skipped 0/0/0/2 all_skipped",
        ),
        // `prove -v`: a word of its own after each program, and its own verdict.
        (
            "t/a.t .. \n1..2\nok 1 - a\nok 2\nok\nt/b.t .. \nok 1\n1..1\nok\nAll tests successful.\nResult: PASS\n",
            "tap pass 3/0/0/0",
        ),
        (
            "t/b.t .. \nok 1 - a\n1..1\nDubious, test returned 3 (wstat 768, 0x300)\nAll 1 subtests passed \nResult: FAIL\n",
            "tap fail 1/0/0/0 run_failed",
        ),
        (
            "t/b.t .. \nok 1 - a\n1..1\nDubious, test returned 3 (wstat 768, 0x300)\n",
            "tap fail 1/0/0/0 run_failed",
        ),
        // A second stream that broke off at its beginning.
        (
            "TAP version 13\n1..1\nok 1\nTAP version 13\n",
            "tap error 1/0/0/0 truncated",
        ),
        (
            "1..0 # SKIP no database\n",
            "tap skipped 0/0/0/1 all_skipped",
        ),
        ("TAP version 13\n1..0\n", "tap error 0/0/0/0 no_tests"),
        // Subtests are their parent's.
        (
            "TAP version 14\n1..1\n    1..2\n    ok 1\n    not ok 2\nnot ok 1 - parent\n",
            "tap fail 0/1/0/0",
        ),
        // Plans that are not kept.
        ("1..3\nok 1\nok 2\n", "tap error 2/0/0/0 truncated"),
        ("1..3\nok 1\nnot ok 2\n", "tap error 1/1/0/0 truncated"),
        ("1..1\nok 1\nok 2\n", "tap error 2/0/0/0 totals_differ"),
        ("TAP version 13\nok 1\n", "tap error 1/0/0/0 truncated"),
        ("TAP version 13\n", "tap error 0/0/0/0 truncated"),
        (
            "1..2\nok 1\nBail out! disk full\n",
            "tap error 1/0/0/0 bailed_out truncated",
        ),
        ("TAP version 13\r\n1..1\r\nok 1\r\n", "tap pass 1/0/0/0"),
        (
            "TAP version 13\n1..99999999999999999999\nok 1\n",
            "tap error 1/0/0/0 truncated",
        ),
        // What only looks like it.
        ("ok then\nok 1\n", "unknown"),
        ("1..5\n", "unknown"),
        ("Bail out!\n", "unknown"),
        ("okay\n1..1\n", "unknown"),
    ] {
        assert_eq!(line(log), said, "{log}");
    }
}

#[test]
fn several_tools_in_one_log_are_added_up() {
    let log = format!("running 3 tests\n{OK}===== 1 failed, 5 passed in 0.12s =====\n");
    assert_eq!(line(&log), "cargo+pytest fail 7/1/0/1");
    let one = |format| Options {
        format: Some(format),
        ..Options::default()
    };
    assert_eq!(line_with(&log, one(Format::Cargo)), "cargo pass 2/0/0/1");
    assert_eq!(
        line_with(&log, one(Format::Tap)),
        "tap error 0/0/0/0 no_summary"
    );
    assert_eq!(
        line_with(&log, one(Format::Plain)),
        "plain error 0/0/0/0 no_exit"
    );
}

#[test]
fn what_is_no_report_is_refused() {
    for bytes in [
        &b""[..],
        b"\0",
        b"\n\n\n",
        b"{",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"hello\n",
        b"PK\x03\x04\0\0",
    ] {
        assert_eq!(line(bytes), "unknown", "{bytes:?}");
    }
}
