//! Which parts of `serve` run in this process.

use std::collections::BTreeSet;

use clap::ValueEnum as _;

use crate::{arguments::RoleName, exit::Failure};

/// The roles that there are.
const PRESENT: [RoleName; 4] =
    [RoleName::Engine, RoleName::Api, RoleName::Notifier, RoleName::Watchdog];

/// The parts that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roles(BTreeSet<RoleName>);

impl Roles {
    /// Those that were asked for; all that there are, when none was.
    pub(crate) fn asked(names: &[RoleName]) -> Result<Self, Failure> {
        if let Some(absent) = names.iter().find(|name| !PRESENT.contains(name)) {
            let message = format!("the role `{}` is not in this build yet", word(*absent));
            let present = PRESENT.map(word).join(", ");
            return Err(Failure::usage(message, format!("There are {present}.")));
        }
        let asked = if names.is_empty() { &PRESENT } else { names };
        let roles = Self(asked.iter().copied().collect());
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

    pub(crate) fn has(&self, role: RoleName) -> bool {
        self.0.contains(&role)
    }

    /// Their names, in one order.
    pub(crate) fn words(&self) -> Vec<String> {
        self.0.iter().copied().map(word).collect()
    }
}

fn word(role: RoleName) -> String {
    role.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
