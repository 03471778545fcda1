//! `interlock calendar import`.

use std::fs;

use super::{interlock, project};

const ICS: &str = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261225\r\nRRULE:FREQ=YEARLY\r\nSUMMARY:Christmas\r\nEND:VEVENT\r\n\
    BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261228\r\nDTEND;VALUE=DATE:20270101\r\nSUMMARY:Closed\r\nEND:VEVENT\r\n\
    BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260119\r\nRRULE:FREQ=YEARLY;BYDAY=3MO;BYMONTH=1\r\nSUMMARY:MLK\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";

#[test]
fn an_imported_calendar_leaves_its_days_out() {
    let dir = project(&[
        ("Firm Holidays.ics", ICS),
        (
            "pipelines/daily.yaml",
            "name: daily\nschedule: \"0 9 * * *\"\nexclusions: {calendar: firm-holidays}\ntrigger: {type: external}\n",
        ),
    ]);
    let path = dir.path().to_str().unwrap();
    let file = dir.path().join("Firm Holidays.ics");
    let ran = interlock(&["calendar", "import", file.to_str().unwrap(), "-C", path]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("left out: line") && ran.stderr.contains("MLK"), "{}", ran.stderr);
    assert_eq!(interlock(&["validate", path]).code, 0);
    let slots =
        interlock(&["next", "-C", path, "--from", "2026-12-24", "--count", "5", "--json"]).json();
    let days: Vec<_> =
        slots.as_array().unwrap().iter().map(|slot| &slot["utc"].as_str().unwrap()[..10]).collect();
    assert_eq!(days, ["2026-12-24", "2026-12-26", "2026-12-27", "2027-01-01", "2027-01-02"]);
    // A second import does not overwrite by accident.
    let again = interlock(&["calendar", "import", file.to_str().unwrap(), "-C", path]);
    assert_eq!(again.code, 3);
    let forced = interlock(&["calendar", "import", file.to_str().unwrap(), "-C", path, "--force"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
}

#[test]
fn a_file_without_days_writes_nothing() {
    let dir = project(&[("empty.ics", "BEGIN:VCALENDAR\nEND:VCALENDAR\n"), ("page.ics", "<html>")]);
    for name in ["empty.ics", "page.ics", "gone.ics"] {
        let file = dir.path().join(name);
        let ran = interlock(&[
            "calendar",
            "import",
            file.to_str().unwrap(),
            "-C",
            dir.path().to_str().unwrap(),
        ]);
        assert_eq!(ran.code, 3, "{name}");
        assert!(ran.stderr.contains(name), "{}", ran.stderr);
    }
    assert!(fs::read_dir(dir.path().join("calendars")).is_err());
}
