//! TRX, NUnit and xUnit.net.

use crate::xml::utf16;
use crate::{line, reading};

const TRX: &str = "<TestRun xmlns='http://microsoft.com/schemas/VisualStudio/TeamTest/2010'>\
    <Times start='2026-01-02T03:04:05.0000000+01:00' finish='2026-01-02T03:04:07.5000000+01:00'/><Results>";

#[test]
fn trx_outcomes() {
    let results = |results: &str, rest: &str| format!("{TRX}{results}</Results>{rest}</TestRun>");
    let one = |outcome: &str| format!("<UnitTestResult testName='t' outcome='{outcome}'/>");
    for (outcome, said) in [
        ("Passed", "trx pass 1/0/0/0"),
        ("Failed", "trx fail 0/1/0/0"),
        ("Timeout", "trx fail 0/0/1/0"),
        ("Aborted", "trx fail 0/0/1/0"),
        ("NotExecuted", "trx skipped 0/0/0/1 all_skipped"),
        ("Inconclusive", "trx skipped 0/0/0/1 all_skipped"),
        ("Sideways", "trx fail 0/0/1/0 unknown_outcome"),
    ] {
        assert_eq!(line(results(&one(outcome), "")), said);
    }
    let nothing = "<UnitTestResult testName='t'/>";
    assert_eq!(line(results(nothing, "")), "trx fail 0/0/1/0");
    let crashed = results(&one("Passed"), "<ResultSummary outcome='Aborted'/>");
    assert_eq!(line(crashed), "trx fail 1/0/0/0 run_failed");
    let unended = results(&one("Passed"), "<ResultSummary outcome='InProgress'/>");
    assert_eq!(line(unended), "trx fail 1/0/0/0 run_failed");
    let more =
        "<ResultSummary outcome='Completed'><Counters total='3' passed='3'/></ResultSummary>";
    assert_eq!(
        line(results(&one("Passed"), more)),
        "trx error 1/0/0/0 totals_differ"
    );
    let within = "<UnitTestResult testName='all' outcome='Failed'><InnerResults>\
        <UnitTestResult testName='1' outcome='Passed'/><UnitTestResult testName='2' outcome='Failed'>\
        <Output><ErrorInfo><Message>no</Message></ErrorInfo></Output></UnitTestResult>\
        </InnerResults></UnitTestResult>";
    let found = reading(results(within, ""));
    assert_eq!((found.counts.passed, found.counts.failed), (1, 1));
    assert_eq!(found.failures[0].message.as_deref(), Some("no"));
    assert_eq!(found.duration_ms, Some(2_500));
    let report = utf16(&results(&one("Passed"), ""), true, true);
    assert_eq!(line(report), "trx pass 1/0/0/0");
    assert_eq!(
        line(format!("{TRX}{}", one("Passed"))),
        "trx error 1/0/0/0 truncated"
    );
}

#[test]
fn nunit_of_both_versions() {
    let three = "<test-run total='4' failed='1' result='Failed' duration='1.5' engine-version='3.12.0'><test-suite>\
        <test-case fullname='N.a' result='Passed'/><test-case fullname='N.b' result='Failed'><failure><message>no</message></failure></test-case>\
        <test-case fullname='N.c' result='Failed' label='Error'/><test-case fullname='N.d' result='Inconclusive'/></test-suite></test-run>";
    assert_eq!(line(three), "nunit fail 1/1/1/1");
    let found = reading(three);
    assert_eq!(found.tool.unwrap().version.as_deref(), Some("3.12.0"));
    assert_eq!(
        (found.duration_ms, found.failures[0].message.as_deref()),
        (Some(1_500), Some("no"))
    );
    let two = "<test-results total='2' errors='0' failures='1' not-run='1'><environment nunit-version='2.6.4'/><test-suite><results>\
        <test-case name='a' executed='True' success='True'/><test-case name='b' executed='True' success='False'/>\
        <test-case name='c' executed='False'/></results></test-suite></test-results>";
    assert_eq!(line(two), "nunit fail 1/1/0/1");
    for (report, said) in [
        (
            "<test-run total='1' failed='0' result='Failed'><test-case result='Passed'/></test-run>",
            "nunit fail 1/0/0/0 run_failed",
        ),
        // Tearing down failed, of version 2, which has a result of suites alone.
        (
            "<test-results total='1' errors='0' failures='0'><test-suite result='Error' success='False'><results>\
             <test-case name='a' executed='True' result='Success'/></results></test-suite></test-results>",
            "nunit fail 1/0/0/0 run_failed",
        ),
        (
            "<test-run total='2' failed='0'><test-case result='Passed'/></test-run>",
            "nunit error 1/0/0/0 totals_differ",
        ),
        ("<test-run><test-case/></test-run>", "nunit fail 0/0/1/0"),
        (
            "<test-run><test-case result='Odd'/></test-run>",
            "nunit fail 0/0/1/0 unknown_outcome",
        ),
        (
            "<test-run><test-case result='Passed'/>",
            "nunit error 1/0/0/0 truncated",
        ),
        ("<test-run/>", "nunit error 0/0/0/0 no_tests"),
    ] {
        assert_eq!(line(report), said, "{report}");
    }
}

#[test]
fn xunit_version_two() {
    let whole = "<assemblies><assembly total='3' passed='1' failed='1' skipped='1' errors='1' time='0.5' test-framework='xUnit.net 2.9.0'>\
        <errors><error type='assembly-cleanup' name='x'/></errors><collection>\
        <test name='a' result='Pass'/><test name='b' result='Fail'><failure><message>no</message></failure></test>\
        <test name='c' result='Skip'><reason>later</reason></test></collection></assembly></assemblies>";
    assert_eq!(line(whole), "xunit fail 1/1/1/1");
    let tool = reading(whole).tool.unwrap();
    assert_eq!(
        (tool.name.as_str(), tool.version.as_deref()),
        ("xUnit.net", Some("2.9.0"))
    );
    for (report, said) in [
        (
            "<assembly total='1'><test result='Pass'/></assembly>",
            "xunit pass 1/0/0/0",
        ),
        (
            "<assembly total='2'><test result='Pass'/></assembly>",
            "xunit error 1/0/0/0 totals_differ",
        ),
        (
            "<assembly total='1' failed='1'><test result='Pass'/></assembly>",
            "xunit fail 1/0/0/0 totals_differ",
        ),
        (
            "<assembly><test result='pass'/></assembly>",
            "xunit fail 0/0/1/0 unknown_outcome",
        ),
        (
            "<assembly><test result='NotRun'/></assembly>",
            "xunit skipped 0/0/0/1 all_skipped",
        ),
        ("<assemblies/>", "xunit error 0/0/0/0 no_tests"),
        (
            "<assembly><test result='Pass'>",
            "xunit error 0/0/0/0 truncated",
        ),
    ] {
        assert_eq!(line(report), said, "{report}");
    }
}
