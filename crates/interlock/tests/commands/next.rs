//! `interlock next`.

use serde_json::json;

use super::{interlock, project};

#[track_caller]
fn check_ad_hoc(arguments: &[&str], expected: &[&str]) {
    let ran = interlock(&[&["next", "--json"], arguments].concat());
    let slots = ran.json();
    let found: Vec<_> =
        slots.as_array().unwrap().iter().map(|slot| slot["local"].as_str().unwrap()).collect();
    assert_eq!(found, expected, "{}", ran.stderr);
}

#[test]
fn an_ad_hoc_expression_is_listed_from_its_start_on_inclusive() {
    let arguments = [
        "--cron",
        "0 3 * * *",
        "--tz",
        "Europe/Riga",
        "--from",
        "2021-03-27T03:00",
        "--count",
        "3",
    ];
    let expected =
        ["2021-03-27T03:00:00+02:00", "2021-03-28T04:00:00+03:00", "2021-03-29T03:00:00+03:00"];
    check_ad_hoc(&arguments, &expected);
}

#[test]
fn the_daylight_saving_policy_can_be_given() {
    let base = [
        "--cron",
        "59 1 * * *",
        "--tz",
        "America/Los_Angeles",
        "--from",
        "2020-11-01",
        "--count",
        "2",
    ];
    let both = [&base[..], &["--dst", "gap=skip,overlap=both"]].concat();
    check_ad_hoc(&both, &["2020-11-01T01:59:00-07:00", "2020-11-01T01:59:00-08:00"]);
    let second = [&base[..], &["--dst", "overlap=second"]].concat();
    check_ad_hoc(&second, &["2020-11-01T01:59:00-08:00", "2020-11-02T01:59:00-08:00"]);
}

#[test]
fn seconds_and_a_zone_in_front_are_understood() {
    let arguments = [
        "--cron",
        "CRON_TZ=US/Pacific 33 33 2 * * *",
        "--seconds",
        "--dst",
        "gap=skip",
        "--from",
        "2022-03-12T00:00:00Z",
        "--count",
        "2",
    ];
    check_ad_hoc(&arguments, &["2022-03-12T02:33:33-08:00", "2022-03-14T02:33:33-07:00"]);
}

#[test]
fn json_has_the_promised_fields() {
    let ran = interlock(&[
        "next",
        "--cron",
        "30 2 * * *",
        "--tz",
        "Europe/Berlin",
        "--from",
        "2026-10-25",
        "--count",
        "1",
        "--json",
    ]);
    assert_eq!(
        ran.json(),
        json!([{
            "pipeline": "ad-hoc",
            "schedule": "cron",
            "slot": "ad-hoc/cron/2026-10-25T00:30:00Z",
            "utc": "2026-10-25T00:30:00Z",
            "local": "2026-10-25T02:30:00+02:00",
            "date": "2026-10-25",
            "dst": "first_of_two",
            "leftOut": [],
            "note": "DST: first of two, the clock is set back",
        }])
    );
}

#[test]
fn a_mistake_in_the_expression_is_underlined() {
    let ran = interlock(&["next", "--cron", "0 0 31 4 *"]);
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "error: this schedule can never fire: no day has such a date and time\n  0 0 31 4 *\n      ^^^^^^\n"
    );
    let ran = interlock(&["next", "--cron", "CRON_TZ=Europe/Rigga 0 2 * * *"]);
    assert_eq!(
        ran.stderr,
        "error: there is no time zone `Europe/Rigga`\n  CRON_TZ=Europe/Rigga 0 2 * * *\n          ^^^^^^^^^^^^\nhelp: Did you mean `Europe/Riga`?\n"
    );
}

#[test]
fn every_quickstart_pipeline_is_listed() {
    let ran = interlock(&["next", "-C", "examples/quickstart", "--count", "10", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let slots = ran.json();
    for name in ["daily-report", "minutely-etl", "nightly-backup", "orders", "revenue"] {
        let count =
            slots.as_array().unwrap().iter().filter(|slot| slot["pipeline"] == name).count();
        assert_eq!(count, 10, "{name}");
    }
}

#[test]
fn the_nights_and_holidays_of_the_readme_are_marked() {
    let ran = interlock(&[
        "next",
        "daily-report",
        "--from",
        "2027-03-26",
        "--count",
        "3",
        "-C",
        "examples/quickstart",
    ]);
    let shown = "\
PIPELINE      SCHEDULE  LOCAL                      UTC                   NOTE
daily-report  cron      2027-03-27T02:30:00+01:00  2027-03-27T01:30:00Z  before it: 2027-03-26 excluded by de-holidays
daily-report  cron      2027-03-28T03:00:00+02:00  2027-03-28T01:00:00Z  DST: 02:30 does not exist on 2027-03-28, moved past the gap
daily-report  cron      2027-03-30T02:30:00+02:00  2027-03-30T00:30:00Z  before it: 2027-03-29 excluded by de-holidays
";
    assert_eq!(ran.stdout, shown);
    let readme = std::fs::read_to_string(super::repository().join("README.md")).unwrap();
    assert!(readme.contains(shown), "the README shows something else");
}

#[test]
fn schedules_of_one_pipeline_are_merged_in_time_and_bounded() {
    let dir = project(&[(
        "pipelines/multi.yaml",
        "name: multi\nschedule:\n  - \"0 * * * *\"\n  - \"30 9 * * *\"\ntrigger: {type: external}\n",
    )]);
    let dir = dir.path().to_str().unwrap();
    let ran = interlock(&[
        "next",
        "-C",
        dir,
        "--from",
        "2026-01-01T09:00Z",
        "--to",
        "2026-01-01T11:00Z",
        "--json",
    ]);
    let slots = ran.json();
    let utc: Vec<_> =
        slots.as_array().unwrap().iter().map(|slot| slot["utc"].as_str().unwrap()).collect();
    assert_eq!(utc, ["2026-01-01T09:00:00Z", "2026-01-01T09:30:00Z", "2026-01-01T10:00:00Z"]);
}

#[test]
fn stops_and_restarts_are_no_slots_and_their_next_time_is_said() {
    let dir = project(&[(
        "pipelines/feed.yaml",
        "name: feed\nschedule: {start: '0 0 * * *', stop: '0 0 1 1 *'}\n\
         trigger: {type: command, command: 'true'}\n",
    )]);
    let directory = dir.path().to_str().unwrap();
    let ran = interlock(&["next", "-C", directory, "--count", "2"]);
    assert!(ran.stdout.contains("feed/stop ends what runs, next at 20"), "{}", ran.stdout);
    let slots = interlock(&["next", "-C", directory, "--count", "2", "--json"]).json();
    assert!(slots.as_array().unwrap().iter().all(|slot| slot["schedule"] == "cron"), "{slots}");
}

#[test]
fn an_unknown_pipeline_is_answered_with_the_known_ones() {
    let ran = interlock(&["next", "oders", "-C", "examples/quickstart"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("there is no pipeline `oders`") && ran.stderr.contains("orders"));
}

#[test]
fn usable_pipelines_are_listed_although_others_are_broken() {
    let dir = project(&[
        ("pipelines/good.yaml", "name: good\nschedule: \"0 0 * * *\"\ntrigger: {type: external}\n"),
        ("pipelines/bad.yaml", "name: bad\nschedule: \"0 0 * *\"\n"),
        ("pipelines/idle.yaml", "name: idle\nschedule: \"0 0 * * *\"\n"),
    ]);
    let ran = interlock(&["next", "-C", dir.path().to_str().unwrap(), "--count", "1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("good  "), "{}", ran.stdout);
    assert!(ran.stdout.contains("idle is never due: it has no trigger"), "{}", ran.stdout);
    assert!(ran.stderr.contains("there is 1 problem in the files"), "{}", ran.stderr);
}
