//! The real `serve`, from outside.
//!
//! A plain program: it generates projects in temporary folders, starts the release binary on them as a process of
//! its own and looks at it from outside (`/proc`, the ledger), because memory and idle time belong to a process.
//! Ten thousand pipelines are measured by default; the filter `serve/100k` measures a hundred thousand, and `fleet` three
//! instances with a hundred thousand on one server, which takes minutes, as does `idle`, an instance that has nothing to do. The limits are in `cargo xtask bench`.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

mod api_lists;
mod catchup;
mod fleet;
mod lists;
#[path = "../../tests/serve/missed_fleet.rs"]
mod missed_fleet;
mod pings;
mod scale;
mod served;

use std::process::ExitCode;

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let filter = filter.unwrap_or_default();
    let wanted =
        |name: &str| name.contains(&filter) || (!filter.is_empty() && filter.contains(name));
    if wanted("serve/10k_") {
        scale::many("10k", 10_000);
    }
    if filter.contains("100k") {
        scale::many("100k", 100_000);
    }
    for (name, measure) in [
        ("lists/embedded_10k", lists::embedded as fn(&str, usize)),
        ("lists/redis_10k", lists::redis),
        ("lists/postgres_10k", lists::postgres),
    ] {
        if wanted(name) {
            measure("10k", 10_000);
        }
    }
    if wanted("api/embedded_10k") {
        api_lists::embedded("embedded_10k", 10_000, 10);
    }
    // Each takes minutes, so only by name.
    if filter == "api/embedded_100k" {
        api_lists::embedded("embedded_100k", 100_000, 1_000);
    }
    if filter == "lists/embedded_100k" {
        lists::embedded("100k", 100_000);
    }
    for (name, measure) in
        [("fleet/redis", fleet::redis as fn(&str, usize)), ("fleet/postgres", fleet::postgres)]
    {
        if filter.starts_with("fleet") && name.contains(&filter) {
            measure("100k", 100_000);
        }
    }
    for (name, measure) in
        [("idle/redis", fleet::idle_redis as fn()), ("idle/postgres", fleet::idle_postgres)]
    {
        if filter.starts_with("idle") && name.contains(&filter) {
            measure();
        }
    }
    if wanted("serve/instant_10k") {
        scale::opened_at_once(10_000);
    }
    if wanted("serve/start_500") {
        scale::started_at_once(500);
    }
    if wanted("serve/catchup_durable") {
        catchup::durable("3600", 50);
        catchup::durable("216000", 3_000);
    }
    if wanted("serve/catchup_first_run") {
        catchup::first_run();
    }
    if wanted("serve/catchup_drain") {
        catchup::drain(2_000);
    }
    if wanted("serve/catchup_memory") {
        // A million, of few and of many.
        catchup::memory("catchup_memory", 100, 10_000);
        catchup::memory("catchup_memory_10k", 10_000, 100);
    }
    if wanted("serve/pings") {
        pings::durable(1_000);
    }
    if wanted("serve/exec_overhead") {
        pings::exec();
    }
    ExitCode::SUCCESS
}
