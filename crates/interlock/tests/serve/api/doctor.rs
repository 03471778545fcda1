//! What the doctor finds, over HTTP and by the command.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

use super::*;

const BY_HAND: &str = "
name: by-hand
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

/// The codes of what was found, by level.
fn codes<'a>(answer: &'a Value, level: &str) -> Vec<&'a str> {
    let findings = answer["findings"].as_array().unwrap().iter();
    let such = findings.filter(|finding| finding["level"] == level);
    such.map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[test]
fn the_doctor_says_worst_first_what_it_found_and_what_to_do() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    let well = site.project.until("nothing is wrong", || {
        let well = site.get("/api/v1/doctor").ok();
        codes(&well, "problem").is_empty().then_some(well)
    });
    let instance = well["instance"].as_str().unwrap();
    let good = codes(&well, "ok");
    for code in
        ["loops", "self", "store", "clock", "zones", "private", "hearing", "outbox", "ledger"]
    {
        assert!(good.contains(&code), "{code}: {well}");
    }
    assert_eq!(codes(&well, "warning"), ["beacons", "barks"], "{well}");
    for finding in well["findings"].as_array().unwrap() {
        let of_host = [
            "loops", "self", "beacons", "store", "runner", "clock", "zones", "private", "tls",
            "disk",
        ];
        let is_of_host = of_host.contains(&finding["code"].as_str().unwrap());
        let expected = if is_of_host { instance.into() } else { Value::Null };
        assert_eq!(finding["instance"], expected, "{finding}");
        assert_eq!(finding["hint"].is_null(), finding["level"] == "ok", "{finding}");
    }

    let folder = site.project.folder();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.join("ledger.db"), Permissions::from_mode(0o644)).unwrap();
    fs::write(site.project.path().join("pipelines/bad.yaml"), "name: [").unwrap();
    let ill = site.project.until("both are found", || {
        let ill = site.get("/api/v1/doctor").ok();
        (codes(&ill, "problem").len() > 1).then_some(ill)
    });
    assert_eq!(codes(&ill, "problem"), ["private", "files"], "{ill}");
    let (first, second) = (&ill["findings"][0], &ill["findings"][1]);
    assert!(first["message"].to_string().contains("ledger.db (0644)"), "{first}");
    assert!(second["message"].to_string().contains("pipelines/bad.yaml"), "{second}");
    assert!(second["hint"].to_string().contains("interlock validate"), "{second}");
    let folder = site.project.path().to_str().unwrap();
    assert!(!ill.to_string().contains(folder), "no path of the host: {ill}");

    let printed = site.json_of(&["doctor", "--live", "--json"]);
    assert_eq!(codes(&printed, "problem"), ["files", "private"], "{printed}");
    let keys = |answer: &Value| -> Vec<String> {
        answer["findings"][0].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!((keys(&printed), &printed["instance"]), (keys(&ill), &Value::Null));
}
