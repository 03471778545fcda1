//! Which parts of `serve` run in this process.

use std::collections::BTreeSet;

use clap::ValueEnum as _;
use interlock_config::server::Archiver;

use crate::{arguments::RoleName, exit::Failure};

/// The roles that there are.
const PRESENT: [RoleName; 5] =
    [RoleName::Engine, RoleName::Api, RoleName::Notifier, RoleName::Watchdog, RoleName::Archiver];

/// The parts that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roles {
    all: BTreeSet<RoleName>,
    /// Whether somebody named them.
    are_named: bool,
}

impl Roles {
    /// Those that were asked for; all that there are, when none was.
    pub(crate) fn asked(names: &[RoleName]) -> Result<Self, Failure> {
        let asked = if names.is_empty() { &PRESENT } else { names };
        let roles = Self { all: asked.iter().copied().collect(), are_named: !names.is_empty() };
        for beside in [RoleName::Notifier, RoleName::Watchdog] {
            if roles.has(beside) && !roles.has(RoleName::Engine) {
                let name = word(beside);
                return Err(Failure::usage(
                    format!(
                        "on the embedded store the {name} runs only beside the engine, which writes the file"
                    ),
                    format!("Write `--roles engine,{name}`."),
                ));
            }
        }
        Ok(roles)
    }

    /// The same for what the files declare: an archiver needs somewhere to write to.
    pub(crate) fn given(mut self, archiver: Option<&Archiver>) -> Result<Self, Failure> {
        if archiver.is_none() && self.has(RoleName::Archiver) {
            if self.are_named {
                return Err(Failure::usage(
                    "the role `archiver` has nowhere to write to",
                    "Write `archiver: {enabled: true, dsn: \"${ARCHIVE_DSN}\"}` in interlock.yaml.",
                ));
            }
            self.all.remove(&RoleName::Archiver);
        }
        Ok(self)
    }

    pub(crate) fn has(&self, role: RoleName) -> bool {
        self.all.contains(&role)
    }

    /// Their names, in one order.
    pub(crate) fn words(&self) -> Vec<String> {
        self.all.iter().copied().map(word).collect()
    }
}

fn word(role: RoleName) -> String {
    role.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
