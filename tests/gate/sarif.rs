//! SARIF: what fails at which level, and what is no clean scan.

use crate::{line, line_with, reading};
use onrecord::gate::{Format, Level, Options};

fn log(runs: &str) -> String {
    format!(
        "{{\"$schema\":\"https://x/sarif-2.1.0.json\",\"version\":\"2.1.0\",\"runs\":[{runs}]}}"
    )
}

fn run(results: &str) -> String {
    let tool = "\"tool\":{\"driver\":{\"name\":\"lint\",\"version\":\"3.1\",\"rules\":[{\"id\":\"E\",\
        \"defaultConfiguration\":{\"level\":\"error\"}},{\"id\":\"W\"},{\"id\":\"N\",\
        \"defaultConfiguration\":{\"level\":\"note\"}}]}}";
    log(&format!("{{{tool},\"results\":{results}}}"))
}

fn at(level: Level) -> Options {
    Options {
        sarif_level: level,
        ..Options::default()
    }
}

#[test]
fn levels_decide() {
    let results = run(
        "[{\"level\":\"error\",\"ruleId\":\"x\",\"message\":{\"text\":\"bad\"}},\
        {\"level\":\"warning\"},{\"level\":\"note\"},{\"level\":\"none\"},{\"kind\":\"pass\",\"level\":\"none\"}]",
    );
    assert_eq!(line(&results), "sarif fail 1/1/0/3");
    assert_eq!(
        line_with(&results, at(Level::Warning)),
        "sarif fail 1/2/0/2"
    );
    assert_eq!(line_with(&results, at(Level::Note)), "sarif fail 1/3/0/1");
    assert_eq!(line_with(&results, at(Level::None)), "sarif pass 1/0/0/4");
    let found = reading(&results);
    assert_eq!(found.failures[0].message.as_deref(), Some("bad"));
    let tool = found.tool.unwrap();
    assert_eq!(
        (tool.name.as_str(), tool.version.as_deref()),
        ("lint", Some("3.1"))
    );
}

#[test]
fn a_finding_without_a_level_has_its_rules() {
    for (results, said) in [
        ("[{\"ruleId\":\"E\"}]", "sarif fail 0/1/0/0"),
        ("[{\"ruleIndex\":0}]", "sarif fail 0/1/0/0"),
        (
            "[{\"ruleId\":\"W\"},{\"ruleId\":\"N\"},{\"ruleIndex\":9},{\"ruleIndex\":-1},{}]",
            "sarif pass 0/0/0/5",
        ),
        ("[{\"level\":\"dire\"}]", "sarif fail 0/1/0/0"),
        ("[{\"kind\":\"odd\"}]", "sarif fail 0/1/0/0 unknown_outcome"),
        (
            "[{\"kind\":\"review\",\"level\":\"error\"}]",
            "sarif fail 0/1/0/0",
        ),
        (
            "[{\"level\":\"error\",\"suppressions\":[{\"kind\":\"inSource\"}]}]",
            "sarif pass 0/0/0/1",
        ),
        (
            "[{\"level\":\"error\",\"suppressions\":[{\"kind\":\"external\",\"status\":\"rejected\"}]}]",
            "sarif fail 0/1/0/0",
        ),
        (
            "[{\"level\":\"error\",\"suppressions\":[]}]",
            "sarif fail 0/1/0/0",
        ),
    ] {
        assert_eq!(line(run(results)), said, "{results}");
    }
    // Rules that come after their findings.
    let late = log(
        "{\"results\":[{\"ruleId\":\"E\"}],\"tool\":{\"driver\":{\"name\":\"l\",\"rules\":[{\"id\":\"E\",\"defaultConfiguration\":{\"level\":\"error\"}}]}}}",
    );
    assert_eq!(line(late), "sarif fail 0/1/0/0");
}

/// Tools keep rules apart from themselves, in packs, and name them with more than their id.
#[test]
fn a_rule_is_found_wherever_it_is() {
    let tool = "\"tool\":{\"driver\":{\"name\":\"q\",\"rules\":[{\"id\":\"own\"}]},\"extensions\":[\
        {\"name\":\"empty\"},{\"name\":\"pack\",\"rules\":[{\"id\":\"sql\",\"defaultConfiguration\":{\"level\":\"error\"}},\
        {\"id\":\"own\",\"defaultConfiguration\":{\"level\":\"error\"}}]}]}";
    for (result, said) in [
        ("\"ruleId\":\"sql\"", "sarif fail 0/1/0/0"),
        (
            "\"ruleId\":\"sql\",\"ruleIndex\":0,\"rule\":{\"id\":\"sql\",\"index\":0,\"toolComponent\":{\"index\":1}}",
            "sarif fail 0/1/0/0",
        ),
        (
            "\"rule\":{\"index\":0,\"toolComponent\":{\"index\":1}}",
            "sarif fail 0/1/0/0",
        ),
        ("\"ruleId\":\"sql/string\"", "sarif fail 0/1/0/0"),
        ("\"rule\":{\"id\":\"sql\"}", "sarif fail 0/1/0/0"),
        // An index of the tool's own rules beside the name of another.
        ("\"ruleId\":\"sql\",\"ruleIndex\":0", "sarif fail 0/1/0/0"),
        ("\"ruleId\":\"none\",\"ruleIndex\":7", "sarif pass 0/0/0/1"),
        // Of two with the same name the graver one, unless its place says which.
        ("\"ruleId\":\"own\"", "sarif fail 0/1/0/0"),
        ("\"ruleId\":\"own\",\"ruleIndex\":0", "sarif pass 0/0/0/1"),
        // It was there, and is no longer.
        (
            "\"level\":\"error\",\"baselineState\":\"absent\"",
            "sarif pass 0/0/0/1",
        ),
        (
            "\"level\":\"error\",\"baselineState\":\"unchanged\"",
            "sarif fail 0/1/0/0",
        ),
    ] {
        let report = log(&format!("{{{tool},\"results\":[{{{result}}}]}}"));
        assert_eq!(line(&report), said, "{result}");
    }
}

#[test]
fn only_a_scan_that_ended_is_clean() {
    let tool = "\"tool\":{\"driver\":{\"name\":\"l\"}}";
    for (report, said) in [
        (run("[]"), "sarif pass 0/0/0/0"),
        (log(""), "sarif error 0/0/0/0 no_runs"),
        (
            log(&format!("{{{tool}}}")),
            "sarif error 0/0/0/0 no_results",
        ),
        (
            log(&format!("{{{tool},\"results\":null}}")),
            "sarif error 0/0/0/0 no_results",
        ),
        (
            log(&format!(
                "{{{tool},\"results\":[],\"invocations\":[{{\"executionSuccessful\":false}}]}}"
            )),
            "sarif error 0/0/0/0 run_failed",
        ),
        (
            log(&format!(
                "{{{tool},\"results\":[],\"invocations\":[{{\"executionSuccessful\":true,\
                 \"toolExecutionNotifications\":[{{\"level\":\"note\"}},{{\"level\":\"error\"}}]}}]}}"
            )),
            "sarif pass 0/0/0/0 tool_errors",
        ),
        (
            run("[]").replace("2.1.0\",\"runs", "1.0.0\",\"runs"),
            "sarif error 0/0/0/0 version",
        ),
        (
            run("[]").replace("\"version\":\"2.1.0\",", ""),
            "sarif error 0/0/0/0 version",
        ),
        (run("{}"), "sarif error 0/0/0/0 not_well_formed"),
        (run("[5]"), "sarif error 0/0/0/0 not_well_formed"),
        (
            format!("{} x", run("[]")),
            "sarif error 0/0/0/0 not_well_formed",
        ),
        (
            run("[{\"level\":\"error\"},"),
            "sarif error 0/1/0/0 not_well_formed",
        ),
        (
            run("[{\"level\":\"error\"}]")
                .split("}]")
                .next()
                .unwrap()
                .to_owned(),
            "sarif error 0/0/0/0 truncated",
        ),
    ] {
        let found = line(&report);
        assert!(found.starts_with(said), "{report}: {found}");
    }
    let named = Options {
        format: Some(Format::Sarif),
        ..Options::default()
    };
    assert_eq!(line_with("", named), "sarif error 0/0/0/0 truncated");
    assert_eq!(
        line_with("[]", named),
        "sarif error 0/0/0/0 not_well_formed"
    );
    let deep = format!(
        "{{\"version\":\"2.1.0\",\"runs\":[{{\"x\":{}",
        "[".repeat(200_000)
    );
    assert!(line_with(deep, named).starts_with("sarif error"));
    let wide: Vec<u8> = run("[]")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(line(wide), "sarif pass 0/0/0/0");
}
