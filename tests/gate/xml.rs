//! JUnit: what is odd, wrong or hostile in them.

use crate::{line, line_with, reading};
use onrecord::gate::{Format, Options};

fn junit(inside: &str) -> String {
    format!("<testsuites><testsuite name='s'>{inside}</testsuite></testsuites>")
}

#[test]
fn junit_counts_what_is_there() {
    let all = "<testcase name='a'/><testcase name='b'><failure message='no'/></testcase>\
               <testcase name='c'><error>broke</error></testcase><testcase name='d'><skipped/></testcase>";
    assert_eq!(line(junit(all)), "junit fail 1/1/1/1");
    assert_eq!(line(junit("<testcase name='a'/>")), "junit pass 1/0/0/0");
    let found = reading(junit(all)).failures;
    let named: Vec<_> = found
        .iter()
        .map(|one| (one.name.as_str(), one.kind, one.message.as_deref()))
        .collect();
    assert_eq!(
        named,
        [("b", "failed", Some("no")), ("c", "error", Some("broke"))]
    );
}

#[test]
fn junit_in_its_many_spellings() {
    for (report, said) in [
        // Prefixes and namespaces, a processing instruction, a comment, CDATA with tags in it.
        (
            "<?xml version='1.0'?><?x y?><!-- <testcase/> --><j:testsuite xmlns:j='urn:x'><j:testcase>\
             <j:system-out><![CDATA[<testcase/><failure/>]]></j:system-out></j:testcase></j:testsuite>",
            "junit pass 1/0/0/0",
        ),
        // By status alone.
        (
            "<testsuite><testcase status='failed'/><testcase result='suppressed' status='run'/>\
             <testcase status='errored'/><testcase status='run' result='completed'/></testsuite>",
            "junit fail 1/1/1/1",
        ),
        // A word that nobody knows is no pass, and of two the worse counts.
        (
            "<testsuite><testcase status='exploded'/></testsuite>",
            "junit fail 0/0/1/0 unknown_outcome",
        ),
        (
            "<testsuite><testcase status='timedOut'/><testcase result='completed' status='fail'/></testsuite>",
            "junit fail 0/1/1/0",
        ),
        // A suite that broke as a whole.
        (
            "<testsuite><error message='no database'/><testcase/></testsuite>",
            "junit fail 1/0/1/0",
        ),
        // Signs that are not the test's own.
        (
            "<testsuite><testcase><properties><failure/></properties></testcase></testsuite>",
            "junit pass 1/0/0/0",
        ),
        // A flaky test that passed in the end.
        (
            "<testsuite tests='1' failures='0'><testcase><flakyFailure/></testcase></testsuite>",
            "junit pass 1/0/0/0",
        ),
        // Totals that leave skipped tests out.
        (
            "<testsuite tests='1'><testcase/><testcase><skipped/></testcase></testsuite>",
            "junit pass 1/0/0/1",
        ),
        (
            "<testsuite><testcase><skipped/></testcase></testsuite>",
            "junit skipped 0/0/0/1 all_skipped",
        ),
        ("<testsuite></testsuite>", "junit error 0/0/0/0 no_tests"),
        ("<testsuites/>", "junit error 0/0/0/0 no_tests"),
    ] {
        assert_eq!(line(report), said, "{report}");
    }
}

#[test]
fn totals_that_do_not_fit_are_no_pass() {
    for (report, said) in [
        (
            "<testsuite tests='2'><testcase/></testsuite>",
            "junit error 1/0/0/0 totals_differ",
        ),
        (
            "<testsuite tests='0'><testcase/></testsuite>",
            "junit error 1/0/0/0 totals_differ",
        ),
        (
            "<testsuite tests='-1'><testcase/></testsuite>",
            "junit error 1/0/0/0 not_a_count",
        ),
        (
            "<testsuite tests='one'><testcase/></testsuite>",
            "junit error 1/0/0/0 not_a_count",
        ),
        (
            "<testsuite tests='1' failures='1'><testcase/></testsuite>",
            "junit fail 1/0/0/0 totals_differ",
        ),
        // Failures without a total.
        (
            "<testsuite failures='1'><testcase/></testsuite>",
            "junit fail 1/0/0/0 totals_differ",
        ),
        // Each suite's own, be it in another that claims nothing.
        (
            "<testsuites><testsuite tests='1'><testcase/></testsuite>\
             <testsuite><testsuite tests='1' failures='0'><testcase/></testsuite></testsuite></testsuites>",
            "junit pass 2/0/0/0",
        ),
        // A test beside the suites, which is in no total.
        (
            "<testsuites><testcase/><testsuite tests='1'><testcase/></testsuite></testsuites>",
            "junit pass 2/0/0/0",
        ),
        (
            "<testsuites tests='2'><testsuite tests='1'><testcase/></testsuite><testsuite tests='1'/></testsuites>",
            "junit error 1/0/0/0 totals_differ",
        ),
        (
            "<testsuite tests='99999999999999999999'><testcase/></testsuite>",
            "junit error 1/0/0/0 not_a_count",
        ),
        (
            "<testsuite tests='18446744073709551615' failures='18446744073709551615' errors='5'><testcase/></testsuite>",
            "junit fail 1/0/0/0 totals_differ totals_differ",
        ),
    ] {
        assert_eq!(line(report), said, "{report}");
    }
}

#[test]
fn what_is_not_well_formed_is_an_error() {
    for (report, code) in [
        ("<testsuite><testcase/>", "truncated"),
        ("<testsuite><testcase name='a'", "not_well_formed"),
        // An attribute that is none, and one that says two things.
        (
            "<testsuite><testcase status=failed/></testsuite>",
            "not_well_formed",
        ),
        (
            "<testsuite><testcase status/></testsuite>",
            "not_well_formed",
        ),
        (
            "<testsuite><testcase status='passed' status='failed'/></testsuite>",
            "not_well_formed",
        ),
        ("<testsuite><testcase name='a", "not_well_formed"),
        ("<testsuite><testcase/></testsuites>", "not_well_formed"),
        (
            "<testsuite><testcase/></testsuite><testsuite/>",
            "not_well_formed",
        ),
        (
            "<testsuite><testcase/></testsuite>left over",
            "not_well_formed",
        ),
        ("<testsuite><testcase/><![CDATA[open", "not_well_formed"),
        ("<testsuite><testcase/><!-- open", "not_well_formed"),
        (
            "<testsuite><testcase></testsuite></testcase>",
            "not_well_formed",
        ),
        ("<testsuite><testcase/><", "not_well_formed"),
        (
            "<!DOCTYPE t [<!ENTITY a 'b'>]><testsuite><testcase name='&a;'/></testsuite>",
            "entities_defined",
        ),
        (
            "<!DOCTYPE t [<!ENTITY a 'aaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;'>]>\
             <testsuite><testcase name='x'>&c;</testcase></testsuite>",
            "entities_defined",
        ),
        (
            "<!DOCTYPE t [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><testsuite><testcase>&x;</testcase></testsuite>",
            "entities_defined",
        ),
    ] {
        let said = line(report);
        assert!(
            said.starts_with("junit error") && said.ends_with(code),
            "{report}: {said}"
        );
    }
    // A failure that was seen before the end does not make it whole.
    let cut = "<testsuite><testcase><failure/></testcase><testcase>";
    assert_eq!(line(cut), "junit error 0/1/0/0 truncated");
    // No entity of its own: a plain reference to a definition, and entities nobody defined.
    let known = "<!DOCTYPE testsuite><testsuite><testcase name='&lt;&unknown;&#65;'>&nbsp; a & b</testcase></testsuite>";
    assert_eq!(line(known), "junit pass 1/0/0/0");
}

#[test]
fn another_root_is_refused_or_an_error() {
    for report in [
        "<suites><testcase/></suites>",
        "<html>",
        "<",
        "<?xml version='1.0'?>",
        "",
    ] {
        assert_eq!(line(report), "unknown", "{report}");
    }
    let as_junit = Options {
        format: Some(Format::Junit),
        ..Options::default()
    };
    assert_eq!(
        line_with("<suites><testcase/></suites>", as_junit),
        "junit error 0/0/0/0 wrong_root"
    );
    assert_eq!(
        line_with("no xml at all", as_junit),
        "junit error 0/0/0/0 not_well_formed"
    );
    assert_eq!(line_with("", as_junit), "junit error 0/0/0/0 truncated");
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = format!("<testsuite>{}", "<a>".repeat(100_000));
    assert_eq!(line(deep), "junit error 0/0/0/0 too_deep");
    // A text, a section, a comment and a message of many megabytes each.
    let long = "x".repeat(20 * 1024 * 1024);
    let report = format!(
        "<testsuite><testcase name='a'><failure message='{long}'>{long}</failure></testcase>\
         <testcase name='b'><system-out><![CDATA[{long}]]></system-out></testcase><!--{long}--></testsuite>"
    );
    let found = reading(&report);
    assert_eq!((found.counts.passed, found.counts.failed), (1, 1));
    assert!(found.notices.is_empty(), "{:?}", found.notices);
    assert!(found.failures[0].message.as_ref().unwrap().len() < 10_000);
    let tag = format!("<testsuite><{long}/></testsuite>");
    assert_eq!(line(tag), "junit error 0/0/0/0 not_well_formed");
}

#[test]
fn many_failures_are_counted_and_some_listed() {
    let found = reading(junit(
        &"<testcase name='a'><failure/></testcase>".repeat(1_000),
    ));
    assert_eq!(found.counts.failed, 1_000);
    assert_eq!(found.failures.len() as u64 + found.more_failures, 1_000);
    assert!(found.failures.len() <= 200);
}

pub(crate) fn utf16(text: &str, little: bool, mark: bool) -> Vec<u8> {
    let text = if mark {
        format!("\u{feff}{text}")
    } else {
        text.to_owned()
    };
    let bytes = |unit: u16| {
        if little {
            unit.to_le_bytes()
        } else {
            unit.to_be_bytes()
        }
    };
    text.encode_utf16().flat_map(bytes).collect()
}

#[test]
fn every_encoding_is_read() {
    let report = |encoding: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"{encoding}\"?><testsuite><testcase name=\"grün\"><failure/></testcase></testsuite>"
        )
    };
    let named = |bytes: &[u8]| reading(bytes).failures[0].name.clone();
    for (little, mark) in [(true, true), (true, false), (false, true), (false, false)] {
        let bytes = utf16(&report("utf-16"), little, mark);
        assert_eq!(named(&bytes), "grün", "little {little} mark {mark}");
        // A half of the last unit.
        assert!(line(&bytes[..bytes.len() - 1]).starts_with("junit error"));
    }
    assert_eq!(
        named(format!("\u{feff}{}", report("UTF-8")).as_bytes()),
        "grün"
    );
    // One that names UTF-16 and is not.
    assert_eq!(named(report("UTF-16").as_bytes()), "grün");
    for label in ["iso-8859-1", "windows-1252"] {
        let bytes: Vec<u8> = report(label).chars().map(|one| one as u8).collect();
        assert_eq!(named(&bytes), "grün", "{label}");
    }
    // Bytes that are not what they claim to be.
    let wrong: Vec<u8> = report("UTF-8").chars().map(|one| one as u8).collect();
    assert_eq!(named(&wrong), "gr\u{fffd}n");
    // A NUL, escapes of a terminal, and what JSON refuses.
    let odd = "<testsuite><testcase name='a\0b\u{1b}[31mc\u{fffe}'><error>&#27;[0mx</error></testcase></testsuite>";
    let found = reading(odd).failures.remove(0);
    assert_eq!(
        (found.name.as_str(), found.message.as_deref()),
        ("abc\u{fffd}", Some("x"))
    );
}
