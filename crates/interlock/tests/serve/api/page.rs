//! Every line of `curl` in `docs/api.md` does what the page says.

use std::process::Command;

use interlock_wait::{BOUND, CommandWithin as _};

use super::*;
use crate::project::Ran;

const ORDERS: &str = "
name: orders
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

const HOURLY: &str = "
name: hourly
schedule: '0 * * * *'
trigger: {type: command, command: 'true'}
";

const FAILING: &str = "
name: failing
schedule: '0 0 1 1 *'
retry: {maxAttempts: 1}
trigger: {type: command, command: 'exit 3'}
";

#[test]
fn every_line_of_curl_in_the_documents_works() {
    let site = ApiSite::new(&[("orders", ORDERS), ("hourly", HOURLY), ("failing", FAILING)]);
    assert_eq!(site.project.run(&["run", "orders"]).code, 0);
    assert_eq!(site.project.run(&["run", "failing"]).code, 1);
    let runs = site.get("/api/v1/runs?pipeline=orders").ok();
    let slot = runs["items"][0]["slot"].as_str().and_then(|slot| slot.strip_prefix("orders/"));
    let slot = slot.unwrap();
    let incidents = site.json_of(&["incidents", "--pipeline", "failing", "--json"]);
    let incident = incidents[0]["key"].as_str().unwrap();
    let api = format!("{}/api/v1", site.base);

    let page = include_str!("../../../../../docs/api.md");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("curl ")).collect();
    assert!(lines.len() > 15, "{lines:?}");
    for line in lines {
        // A stream goes on until its reader leaves: a second of it is enough.
        let (line, expected) = if line.contains("/stream") {
            (format!("{line} -m 2"), 28)
        } else {
            (line.to_owned(), 0)
        };
        let ran = Command::new("sh")
            .args(["-c", &line])
            .env("API", &api)
            .env("TOKEN", "none is needed yet")
            .env("SLOT", slot)
            .env("INCIDENT", incident)
            .output_within(BOUND)
            .unwrap();
        let ran = Ran::from(ran);
        assert_eq!(ran.code, expected, "{line}\n{}{}", ran.stdout, ran.stderr);
        assert!(!ran.stdout.is_empty(), "{line}");
    }
}
