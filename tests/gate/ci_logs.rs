//! Reports that other people's tools wrote. The counts were compared with the totals that the files
//! claim for themselves, and, where they claim none, counted by another program.

use crate::line;
use crate::shared::shared;

/// File, and what is read in it. Everything else in the folder is no report.
const REPORTS: &str = "
dorny-test-reporter/dotnet-trx.trx: trx fail 5/5/0/1
dorny-test-reporter/empty/dotnet-trx-empty-test-definitions.trx: trx error 0/0/0/0 no_tests
dorny-test-reporter/empty/dotnet-trx.trx: trx error 0/0/0/0 no_tests
dorny-test-reporter/empty/java-junit.xml: junit error 0/0/0/0 no_tests
dorny-test-reporter/empty/jest-junit-empty-testsuite.xml: junit error 0/0/0/0 no_tests
dorny-test-reporter/empty/jest-junit.xml: junit error 0/0/0/0 no_tests
dorny-test-reporter/empty/phpunit-empty.xml: junit error 0/0/0/0 no_tests
dorny-test-reporter/external/SilentNotes.trx: trx pass 67/0/0/12
dorny-test-reporter/external/java/TEST-org.apache.pulsar.AddMissingPatchVersionTest.xml: junit fail 0/1/0/1
dorny-test-reporter/external/java/empty_failures.xml: junit fail 2/1/0/0
dorny-test-reporter/external/java/junit4-basic.xml: junit fail 5/1/0/0
dorny-test-reporter/external/java/junit4-complete.xml: junit fail 5/1/1/1
dorny-test-reporter/external/java/pulsar-test-report.xml: junit fail 793/1/0/14
dorny-test-reporter/external/jest/jest-react-component-test-results.xml: junit pass 1/0/0/0
dorny-test-reporter/external/phpunit/junit-basic.xml: junit fail 8/1/0/0
dorny-test-reporter/external/phpunit/phpcheckstyle-phpunit.xml: junit fail 28/2/0/0
dorny-test-reporter/golang-json.json: go-json fail 5/6/0/1
dorny-test-reporter/nette-tester/BootstrapFormRenderer-report.xml: junit pass 4/0/0/0
dorny-test-reporter/nette-tester/tester-v1.7-report.xml: junit fail 61/1/0/3
dorny-test-reporter/python-xunit-pytest.xml: junit fail 6/2/0/2 totals_differ
dorny-test-reporter/swift-xunit.xml: junit fail 2/1/0/0
dorny-test-reporter/test-errors/jest/jest-test-results.xml: junit fail 0/0/2/0
enricomi-junit/junit-xml/bazel/suite-logs.xml: junit fail 0/0/1/0
enricomi-junit/junit-xml/empty-system-out-err.xml: junit pass 1/0/0/0
enricomi-junit/junit-xml/jest/jest-junit.xml: junit pass 2/0/0/0
enricomi-junit/junit-xml/junit.multiresult.xml: junit fail 1/1/1/1
enricomi-junit/junit-xml/minimal-attributes.xml: junit fail 1/1/1/1
enricomi-junit/junit-xml/mocha/latex-utensils.xml: junit pass 109/0/0/0
enricomi-junit/junit-xml/no-attributes.xml: junit fail 1/1/1/1
enricomi-junit/junit-xml/no-cases-but-tests.xml: junit fail 0/0/0/0 totals_differ totals_differ
enricomi-junit/junit-xml/no-cases.xml: junit error 0/0/0/0 no_tests
enricomi-junit/junit-xml/pytest/corrupt-xml.xml: junit error 1/0/0/0 truncated
enricomi-junit/junit-xml/pytest/junit.fail.xml: junit fail 3/1/0/1
enricomi-junit/junit-xml/pytest/junit.gloo.elastic.spark.tf.xml: junit pass 20/0/0/2
enricomi-junit/junit-xml/pytest/junit.gloo.elastic.spark.torch.xml: junit pass 22/0/0/0
enricomi-junit/junit-xml/pytest/junit.gloo.elastic.xml: junit pass 10/0/0/4
enricomi-junit/junit-xml/pytest/junit.gloo.standalone.xml: junit pass 80/0/0/17
enricomi-junit/junit-xml/pytest/junit.gloo.static.xml: junit pass 12/0/0/12
enricomi-junit/junit-xml/pytest/junit.mpi.integration.xml: junit pass 3/0/0/0
enricomi-junit/junit-xml/pytest/junit.mpi.standalone.xml: junit pass 96/0/0/1
enricomi-junit/junit-xml/pytest/junit.mpi.static.xml: junit pass 24/0/0/0
enricomi-junit/junit-xml/pytest/junit.spark.integration.1.xml: junit pass 33/0/0/2
enricomi-junit/junit-xml/pytest/junit.spark.integration.2.xml: junit pass 33/0/0/2
enricomi-junit/junit-xml/scalatest/TEST-uk.co.gresearch.spark.diff.DiffOptionsSuite.xml: junit pass 5/0/0/0
enricomi-junit/junit-xml/testsuite-in-testsuite.xml: junit pass 5/0/0/0
enricomi-junit/junit-xml/testsuite-root.xml: junit pass 5/0/0/0
enricomi-junit/junit-xml/tst/disabled.xml: junit fail 6/19/1/5
enricomi-junit/junit-xml/unsupported-unicode.xml: junit fail 1/2/2/2
enricomi-junit/junit-xml/with-xml-entities.xml: junit fail 0/1/1/2
enricomi-junit/junit-xml/xunit/xunit.xml: junit error 2/0/0/0 totals_differ
enricomi-junit/trx/yami_YAMILEX_2015-10-24_04_18_59.trx: trx fail 2/2/2/19
go-test-json/go-test-build-failed.out: go-json fail 0/0/1/0
go-test-json/go-test-json-flaky-rerun.out: go-json fail 6/6/0/0
go-test-json/go-test-json-misattributed.out: go-json fail 4/1/0/0
go-test-json/go-test-json-missing-skip-msg.out: go-json pass 40/0/0/2
go-test-json/go-test-json-missing-test-events.out: go-json fail 4/1/7/0
go-test-json/go-test-json-missing-test-fail.out: go-json fail 0/0/1/0
go-test-json/go-test-json-panic-race-1.out: go-json fail 1/0/1/0
go-test-json/go-test-json-panic-race-2.out: go-json fail 0/0/1/0
go-test-json/go-test-json-with-attributes.out: go-json pass 1/0/0/0
go-test-json/go-test-json-with-cover-go1.20.out: go-json fail 42/12/1/5
go-test-json/go-test-json-with-cover.out: go-json fail 38/4/1/4
go-test-json/go-test-json-with-nonjson-stdout.out: go-json pass 1/0/0/0
go-test-json/go-test-json-with-parallel-fails.out: go-json fail 4/8/0/0
go-test-json/go-test-json-with-shuffle.out: go-json fail 42/12/1/5
go-test-json/go-test-json.out: go-json fail 42/12/1/5
go-test-json/go-test-missing-run-events.out: go-json fail 43/11/0/0
go-test-json/go-test-setup-failed.out: go-json fail 0/0/2/0
go-test-json/junitxml-report.golden: junit fail 42/13/0/5 totals_differ totals_differ
swe-smith/run_evaluation/getmoto__moto.694ce1f4.pr_7331/test_output.txt: pytest pass 210/0/0/0
swe-smith/run_evaluation/pydantic__pydantic.acb0f10f.pr_8316/test_output.txt: pytest pass 169/0/0/0
swe-smith/run_validation/test_output.txt: pytest fail 9/2/0/0
swe-smith/run_validation/test_output_pre_gold.txt: pytest pass 11/0/0/0
swe-smith/test_output/django-money__django-money.835c1ab8.combine_file__7znr0kum.txt: pytest fail 420/9/0/2
swe-smith/test_output/gin-gonic__gin.3c12d2a8.lm_rewrite__4pb48n1g.txt: go-test fail 556/1/0/1
";

#[test]
fn reports_of_other_tools_are_read() {
    let Some(folder) = shared("data/ci-logs") else {
        return;
    };
    let mut folders = vec![folder.clone()];
    let mut read = Vec::new();
    while let Some(below) = folders.pop() {
        for entry in std::fs::read_dir(below).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&folder).unwrap().display().to_string();
            read.push(format!("{name}: {}", line(std::fs::read(&path).unwrap())));
        }
    }
    read.retain(|line| !line.ends_with(": unknown"));
    read.sort();
    assert_eq!(read, REPORTS.trim().lines().collect::<Vec<_>>());
}

/// Cut anywhere, a report is never a pass that the whole is not, and nothing breaks.
#[test]
fn a_cut_report_is_no_better_than_the_whole() {
    let Some(folder) = shared("data/ci-logs") else {
        return;
    };
    for name in [
        "enricomi-junit/junit-xml/pytest/junit.gloo.elastic.xml",
        "enricomi-junit/junit-xml/testsuite-in-testsuite.xml",
        "dorny-test-reporter/external/SilentNotes.trx",
        "go-test-json/go-test-json-missing-skip-msg.out",
        "go-test-json/go-test-json.out",
        "swe-smith/test_output/gin-gonic__gin.3c12d2a8.lm_rewrite__4pb48n1g.txt",
    ] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        let end = whole.trim_ascii_end().len();
        for cut in (0..end).step_by(end / 97).chain([end - 1]) {
            let line = line(&whole[..cut]);
            assert!(
                !line.contains(" pass "),
                "{name} cut at {cut} of {end}: {line}"
            );
        }
    }
}
