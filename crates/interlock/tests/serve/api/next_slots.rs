//! Coming slots over HTTP are those that `interlock next` prints, with what daylight saving and calendars do to them.

use super::*;

const NIGHTLY: &str = "
name: nightly
schedules:
  - {id: night, cron: '30 2 * * *', timezone: Europe/Berlin, exclusions: {dates: ['2031-03-28']}}
trigger: {type: command, command: 'true'}
";
fn site() -> ApiSite {
    let site = ApiSite::new(&[("nightly", NIGHTLY)]);
    site.until_declared(1);
    site
}

#[test]
fn coming_slots_have_what_daylight_saving_and_calendars_do_to_them() {
    let site = site();
    let path = "/api/v1/pipelines/nightly/next";
    let asked = "from=2031-03-27T12:00:00Z&count=3";
    let coming = site.get(&format!("{path}?{asked}")).ok();
    let printed =
        site.json_of(&["next", "nightly", "--from", "2031-03-27T12:00Z", "--count", "3", "--json"]);
    assert_eq!(coming["items"], printed, "the same answers");
    assert_eq!(coming["more"], true);
    let [after, moved, usual] = [0, 1, 2].map(|index| &coming["items"][index]);
    assert_eq!(after["utc"], "2031-03-29T01:30:00Z", "the 28th is left out");
    assert_eq!(after["leftOut"][0]["date"], "2031-03-28");
    assert!(after["note"].as_str().unwrap().contains("2031-03-28"), "{after}");
    assert_eq!((&moved["dst"], &moved["date"]), (&"moved".into(), &"2031-03-30".into()));
    assert_eq!(moved["utc"], "2031-03-30T01:00:00Z");
    assert_eq!((&usual["dst"], &usual["utc"]), (&Value::Null, &"2031-03-31T00:30:00Z".into()));

    let until = site.get(&format!("{path}?from=2031-03-29T00:00:00Z&to=2031-03-31T00:30:00Z")).ok();
    assert_eq!(until["items"].as_array().unwrap().len(), 2, "the end is not within: {until}");
    assert_eq!(until["more"], false);
    let then = site.get(&format!("{path}?at=2031-03-29T12:00:00Z&count=1")).ok();
    assert_eq!(then["items"][0], *moved);

    for (query, told) in [("count=0", "1000"), ("count=1001", "1000"), ("many=1", "count")] {
        let refused = site.get(&format!("{path}?{query}"));
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.to_string().contains(told), "{refused:?}");
    }
    assert_eq!(site.get("/api/v1/pipelines/nobody/next").status, 404);
}

#[test]
fn marked_days_are_those_on_which_a_schedule_is_not_as_usual() {
    let site = site();
    let path = "/api/v1/pipelines/nightly/marked-days";
    let marked = site.get(&format!("{path}?at=2031-03-01T00:00:00Z&days=250")).ok();
    let items = marked["items"].as_array().unwrap();
    let found: Vec<_> = items.iter().map(|it| (&it["date"], &it["kind"])).collect();
    let expected = [("2031-03-28", "excluded"), ("2031-03-30", "dst"), ("2031-10-26", "dst")];
    assert_eq!(found.len(), 3, "{marked}");
    for ((date, kind), (expected_date, expected_kind)) in found.into_iter().zip(expected) {
        assert_eq!((date, kind), (&expected_date.into(), &expected_kind.into()));
    }
    assert_eq!((&items[0]["fallAway"], &items[0]["slots"]), (&1.into(), &0.into()));
    assert_eq!(
        (&items[1]["shiftSeconds"], &items[2]["shiftSeconds"]),
        (&3600.into(), &(-3600).into())
    );
    assert!(items[1]["note"].as_str().unwrap().contains("02:30 does not exist"), "{marked}");
    assert_eq!(items[1]["isAffected"], true);

    let few = site.get(&format!("{path}?at=2031-03-01T00:00:00Z&days=20")).ok();
    assert!(few["items"].as_array().unwrap().is_empty(), "{few}");
    let refused = site.get(&format!("{path}?days=401"));
    assert!(refused.status == 400 && refused.body.to_string().contains("400"), "{refused:?}");
}
