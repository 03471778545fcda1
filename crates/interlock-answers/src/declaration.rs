//! A pipeline's declaration in words: how its schedules and its trigger are called.

use interlock_core::{
    duration,
    pipeline::{CommandLine, TriggerKind},
    readiness::{Condition, Operand, Rule},
    schedule::{Period, Recurrence, Schedule},
};

/// When a schedule owes slots: `0 3 * * * (Europe/Riga)`.
pub fn recurrence(schedule: &Schedule) -> String {
    let zone = schedule.timing().zone.name();
    match schedule.recurrence() {
        Recurrence::Cron(cron) => format!("{} ({zone})", cron.as_str()),
        Recurrence::Every { step, .. } => format!("every {}", seconds(*step)),
        Recurrence::SinceLast { step } => format!("every {} from the last success", seconds(*step)),
        Recurrence::At { time, weekdays } => {
            let days: Vec<_> = weekdays.names().collect();
            let days = if days.len() % 7 == 0 { "day".to_owned() } else { days.join(", ") };
            format!("at {time} every {days} ({zone})")
        }
        Recurrence::Once(at) => format!("once at {at}"),
        Recurrence::Dates { dates, time } => {
            format!("at {time} on {} listed dates ({zone})", dates.len())
        }
        Recurrence::Sensor { rule, period } => {
            let period = match period {
                Period::Day => "day",
                Period::Hour => "hour",
            };
            format!("each {period} when sensor `{}` says so ({zone})", rule.key)
        }
        Recurrence::Daily => format!("daily ({zone})"),
    }
}

fn seconds(step: i64) -> String {
    duration::format(jiff::SignedDuration::from_secs(step))
}

/// What a trigger does, without anything that may be secret.
pub fn trigger_work(kind: &TriggerKind) -> String {
    match kind {
        TriggerKind::Command(command) => command_line(command),
        TriggerKind::Steps(steps) => {
            steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(" → ")
        }
        TriggerKind::Http(http) => format!("{} {}", http.method, http.url),
        TriggerKind::Airflow(airflow) => format!("{} on {}", airflow.dag_id, airflow.url),
        TriggerKind::External => "watch-only: run by another system".to_owned(),
        TriggerKind::Other { name, .. } => name.clone(),
    }
}

fn command_line(command: &CommandLine) -> String {
    match command {
        CommandLine::Shell(text) => text.clone(),
        CommandLine::Argv(parts) => parts.join(" "),
    }
}

/// How many conditions must hold.
pub fn rule(rule: Rule) -> String {
    match rule {
        Rule::All => "all".to_owned(),
        Rule::Any => "any".to_owned(),
        Rule::Majority { threshold: None } => "the majority".to_owned(),
        Rule::Majority { threshold: Some(count) } => format!("at least {count}"),
    }
}

/// A condition of readiness.
pub fn condition(condition: &Condition) -> String {
    match condition {
        Condition::Trait(spec) if spec.required => format!("trait {}", spec.kind),
        Condition::Trait(spec) => format!("trait {} (optional)", spec.kind),
        Condition::Sensor(rule) => {
            let field = rule.field.as_ref().map_or_else(String::new, |field| format!(".{field}"));
            let operand = match &rule.operand {
                Operand::None => String::new(),
                Operand::Value(value) => format!(" {value}"),
                Operand::Age(age) => format!(" {}", duration::format(*age)),
            };
            format!("sensor {}{field} {}{operand}", rule.key, rule.check)
        }
    }
}
