//! Which parts of `serve` run in this process.

use std::collections::BTreeSet;

use clap::ValueEnum as _;
use interlock_config::server::ServerConfig;

use crate::{arguments::RoleName, exit::Failure};

/// The roles that there are.
const PRESENT: [RoleName; 5] =
    [RoleName::Engine, RoleName::Api, RoleName::Notifier, RoleName::Watchdog, RoleName::Archiver];

/// The parts that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roles {
    all: BTreeSet<RoleName>,
    /// Whether the command line names them.
    are_named: bool,
}

impl Roles {
    /// Those that were asked for; all that there are, when none was.
    pub(crate) fn asked(names: &[RoleName]) -> Self {
        let asked = if names.is_empty() { &PRESENT } else { names };
        Self { all: asked.iter().copied().collect(), are_named: !names.is_empty() }
    }

    /// The same for what the files declare: an archiver needs somewhere to write to, engine and watchdog may be switched
    /// off. What was named on the command line, and cannot run, is refused.
    pub(crate) fn given(mut self, config: &ServerConfig) -> Result<Self, Failure> {
        if config.archiver.is_none() {
            self.leave_out(
                RoleName::Archiver,
                "the role `archiver` has no target",
                "Write `archiver: {enabled: true, dsn: \"${ARCHIVE_DSN}\"}` in interlock.yaml.",
            )?;
        }
        if !config.watcher.enabled {
            self.leave_out(
                RoleName::Engine,
                "the role `engine` is switched off: interlock.yaml says `watcher: {enabled: false}`",
                "Take that out, or name other roles, such as `--roles watchdog,notifier`.",
            )?;
        }
        if !config.watchdog.enabled {
            self.leave_out(
                RoleName::Watchdog,
                "the role `watchdog` is switched off: interlock.yaml says `watchdog: {enabled: false}`",
                "Take that out, or name other roles.",
            )?;
        }
        Ok(self)
    }

    /// Leaves out a role that cannot run; refuses it for this reason if it was named.
    fn leave_out(&mut self, role: RoleName, because: &str, help: &str) -> Result<(), Failure> {
        if self.has(role) && self.are_named {
            return Err(Failure::usage(because, help));
        }
        self.all.remove(&role);
        Ok(())
    }

    pub(crate) fn has(&self, role: RoleName) -> bool {
        self.all.contains(&role)
    }

    /// Whether a role writes the ledger, and not only its inbox.
    pub(crate) fn write_the_ledger(&self) -> bool {
        [RoleName::Engine, RoleName::Notifier, RoleName::Watchdog].iter().any(|it| self.has(*it))
    }

    /// Their names, in one order.
    pub(crate) fn words(&self) -> Vec<String> {
        self.all.iter().copied().map(word).collect()
    }
}

fn word(role: RoleName) -> String {
    role.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use interlock_config::{SystemZones, parse_config};

    use super::*;

    fn given(names: &[RoleName], text: &str) -> Result<String, String> {
        let (config, problems) =
            parse_config("interlock.yaml".as_ref(), text, &SystemZones::new(), &|_| None);
        let config = config.unwrap_or_else(|| panic!("{problems:?}"));
        let roles = Roles::asked(names).given(&config);
        roles.map(|roles| roles.words().join(",")).map_err(|failure| failure.message)
    }

    #[test]
    fn what_is_switched_off_does_not_run_and_is_refused_where_it_is_named() {
        let (engine, watchdog) = ([RoleName::Engine], [RoleName::Watchdog, RoleName::Notifier]);
        let plain = "provider: embedded\n";
        assert_eq!(given(&[], plain).as_deref(), Ok("engine,api,notifier,watchdog"));
        assert_eq!(given(&watchdog, plain).as_deref(), Ok("notifier,watchdog"));
        let off = "watcher: {enabled: false}\n";
        assert_eq!(given(&[], off).as_deref(), Ok("api,notifier,watchdog"));
        assert_eq!(given(&watchdog, off).as_deref(), Ok("notifier,watchdog"));
        assert!(given(&engine, off).unwrap_err().contains("watcher: {enabled: false}"));
        let off = "watchdog: {enabled: false}\n";
        assert_eq!(given(&[], off).as_deref(), Ok("engine,api,notifier"));
        assert!(given(&watchdog, off).unwrap_err().contains("watchdog: {enabled: false}"));
    }
}
