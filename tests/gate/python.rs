//! Logs of pytest and unittest.

use crate::{line, reading};

#[test]
fn pytest_summaries() {
    for (log, said) in [
        ("===== 5 passed in 0.12s =====", "pytest pass 5/0/0/0"),
        ("5 passed in 0.12s", "pytest pass 5/0/0/0"),
        (
            "= 1 failed, 2 passed, 3 skipped, 1 xfailed, 1 xpassed, 2 errors, 9 deselected, 4 warnings in 71.00s (0:01:11) =",
            "pytest fail 3/1/2/4",
        ),
        (
            "= 1 skipped in 0.01s =",
            "pytest skipped 0/0/0/1 all_skipped",
        ),
        ("= no tests ran in 0.01s =", "pytest error 0/0/0/0 no_tests"),
        ("= 3 deselected in 0.01s =", "pytest error 0/0/0/0 no_tests"),
        ("= 1 warning, 1 error in 0.10s =", "pytest fail 0/0/1/0"),
        (
            "\u{1b}[32m===== \u{1b}[32m\u{1b}[1m5 passed\u{1b}[0m\u{1b}[32m in 0.12s\u{1b}[0m\u{1b}[32m =====\u{1b}[0m",
            "pytest pass 5/0/0/0",
        ),
        (
            "= 1 passed in 0.1s =\n= 1 failed in 0.1s =",
            "pytest fail 1/1/0/0",
        ),
        (
            "Results (1.25s):\n       3 passed\n       1 failed\n         - a.py:3 test_b\nmore",
            "pytest fail 3/1/0/0",
        ),
        ("Results (1.25s):\n       3 passed", "pytest pass 3/0/0/0"),
        // Broken off.
        (
            "===== test session starts =====\ncollected 5 items\n..",
            "pytest error 0/0/0/0 truncated",
        ),
        (
            "===== test session starts =====\n= 1 passed in 0.1s =\n===== test session starts =====",
            "pytest error 1/0/0/0 truncated",
        ),
        (
            "INTERNALERROR> Traceback",
            "pytest error 0/0/0/0 internal_error truncated",
        ),
        // Listed as failed and not counted.
        (
            "FAILED tests/a.py::b - assert 0\n= 1 passed in 0.1s =",
            "pytest fail 1/0/0/0 totals_differ",
        ),
        // Stopped, with a summary of what was run until then.
        (
            "= test session starts =\n!!!!! KeyboardInterrupt !!!!!\n/a.py:5: KeyboardInterrupt\n= 1 passed in 0.50s =",
            "pytest error 1/0/0/0 cancelled",
        ),
        (
            ".\n!!!!! _pytest.outcomes.Exit: enough !!!!!\n1 passed in 0.46s",
            "pytest error 1/0/0/0 cancelled",
        ),
        (
            "!!!!! stopping after 1 failures !!!!!\n1 failed, 1 passed in 0.46s",
            "pytest fail 1/1/0/0 cancelled",
        ),
        // The log of a program, shown while it runs.
        (
            "a.py::b\n--- live log call ---\nERROR    m:a.py:3 bad thing\nPASSED [100%]\n= 1 passed in 0.02s =",
            "pytest pass 1/0/0/0",
        ),
        // Before version 5.
        (
            "=== 3 passed, 1 skipped in 0.12 seconds ===",
            "pytest pass 3/0/0/1",
        ),
        // What only looks like it.
        ("5 passed", "unknown"),
        ("5 passed in Xs", "unknown"),
        ("5 tests in 1s", "unknown"),
        ("5 passed, 2 exploded in 1s", "unknown"),
        ("-5 passed in 1s", "unknown"),
        ("99999999999999999999 passed in 1s", "unknown"),
        ("built in 3s", "unknown"),
    ] {
        assert_eq!(line(log), said, "{log}");
    }
    let log = "===== test session starts =====\nplatform linux -- Python 3.12.1, pytest-8.0.0, pluggy-1.4.0\n\
               FAILED tests/a.py::b[x - y] - assert 0\n==== 1 failed in 2.50s ====";
    let found = reading(log);
    assert_eq!(found.tool.unwrap().version.as_deref(), Some("8.0.0"));
    assert_eq!(found.duration_ms, Some(2_500));
    assert!(found.failures[0].name.starts_with("tests/a.py::b"));
}

#[test]
fn unittest_summaries() {
    let rule = "-".repeat(70);
    for (log, said) in [
        ("Ran 3 tests in 0.001s\n\nOK\n", "unittest pass 3/0/0/0"),
        (
            "Ran 9 tests in 0.001s\n\nFAILED (failures=1, errors=2, skipped=1, expected failures=1, unexpected successes=1)\n",
            "unittest fail 3/2/2/2",
        ),
        (
            "Ran 1 test in 0.001s\n\nOK (skipped=1)\nDestroying test database\n",
            "unittest skipped 0/0/0/1 all_skipped",
        ),
        (
            "Ran 0 tests in 0.000s\n\nOK\n",
            "unittest error 0/0/0/0 no_tests",
        ),
        (
            "Ran 0 tests in 0.000s\n\nNO TESTS RAN\n",
            "unittest error 0/0/0/0 no_tests",
        ),
        // A class that could not be set up is in no count of tests.
        (
            "Ran 0 tests in 0.000s\n\nFAILED (errors=1)\n",
            "unittest fail 0/0/1/0",
        ),
        (
            "Ran 2 tests in 0.000s\n\nFAILED\n",
            "unittest fail 2/0/0/0 run_failed",
        ),
        (
            "Ran 2 tests in 0.100s\n\nPASSED (skips=1, successes=1)\n",
            "unittest pass 1/0/0/1",
        ),
        (
            "Ran 1 test in 0.1s\n\nOK\nRan 1 test in 0.1s\n\nFAILED (failures=1)\n",
            "unittest fail 1/1/0/0",
        ),
        // Broken off.
        (
            "Ran 3 tests in 0.001s\n",
            "unittest error 0/0/0/0 truncated",
        ),
        // What only looks like it.
        ("Ran 3 tests in 0.001s\nSee the report\nOK\n", "unknown"),
        ("Ran 2 tests for a.sol\nOK\n", "unknown"),
        ("Ran 1 test suite in 5.1ms\nOK\n", "unknown"),
        ("Ran 5 tests across 1 files. [10ms]\nOK\n", "unknown"),
        ("OK\n", "unknown"),
    ] {
        assert_eq!(line(log), said, "{log}");
    }
    let log = format!(
        "F\n{}\nFAIL: test_b (m.T.test_b)\n{rule}\nERROR: no\n{rule}\nRan 1 test in 0.001s\n\nFAILED (failures=1)\n",
        "=".repeat(70)
    );
    let found = reading(log);
    assert_eq!(found.failures.len(), 1);
    assert_eq!(found.failures[0].name, "test_b (m.T.test_b)");
}
