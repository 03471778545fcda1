//! The commands, one file each.

mod archive;
mod backfill;
mod bark;
mod calendar;
mod cancel;
mod catchup;
mod complete;
mod completions;
mod context;
mod doctor;
mod evaluate;
pub(crate) mod events;
mod exec;
mod explain;
mod heartbeat;
mod incidents;
mod init;
mod list;
pub(crate) mod logs;
mod next;
mod pause;
mod rerun;
mod resume;
mod run;
mod runs;
mod schema;
mod sensor;
mod serve;
mod show;
mod silence;
pub(crate) mod slots;
pub(crate) mod status;
mod store;
mod supervise;
mod token;
mod validate;
mod version;
mod wait;
mod watchdog;
mod watermark;
mod why;

use interlock_answers::model::log::LogQuery;
use interlock_evaluator::guard;
use interlock_liveness::signals;

use crate::{
    arguments::{Arguments, Asking, Command, Reading},
    exit::Failure,
    output::{Form, Output},
    serve::reports,
    target::Target,
};

/// Runs what the command line asks for and answers with an exit code.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<u8, Failure> {
    arguments.check_place()?;
    let directory = arguments.directory();
    match &arguments.command {
        Command::Init { .. } => init::run(directory, output),
        Command::Validate { json, .. } => validate::run(directory, Form::asked(*json), output),
        Command::Serve(serve) => serve::run(directory, serve, output),
        // These two are processes of their own, which only start programs of others: those ignore and block what they do.
        Command::Runner { directory } => {
            signals::reset();
            Ok(serve::run_runner(directory))
        }
        Command::EvaluatorGuard { program } => {
            signals::reset();
            Ok(guard::main(program.as_os_str()))
        }
        Command::LivenessHelper { log, arguments } => Ok(reports::help(*log, arguments)),
        Command::Supervise(asked) => supervise::run(directory, asked),
        Command::Heartbeat { command } => heartbeat::run(command, output),
        Command::Schema { kind } => schema::run(*kind, output),
        Command::Next(next) => next::run(&arguments.target()?, next, output),
        Command::Explain(explain) => explain::run(&arguments.target()?, explain, output),
        Command::Reading(reading) => read(arguments, reading, output),
        Command::Asking(asking) => ask(&arguments.target()?, asking, output),
        Command::Exec(exec) => exec::run(directory, exec, output),
        Command::Calendar { command } => calendar::run(directory, command, output),
        Command::Context { command } => context::run(command, output),
        Command::Completions { shell } => Ok(completions::run(*shell, output)),
    }
}

fn read(arguments: &Arguments, reading: &Reading, output: &mut Output) -> Result<u8, Failure> {
    let directory = arguments.directory();
    // Asked for where it is needed: three of these look after the project itself.
    let target = || arguments.target();
    match reading {
        Reading::List { json } => list::run(&target()?, Form::asked(*json), output),
        Reading::Show { pipeline, json } => {
            show::run(&target()?, pipeline, Form::asked(*json), output)
        }
        Reading::Status { pipeline, json } => {
            status::run(&target()?, pipeline.as_deref(), Form::asked(*json), output)
        }
        Reading::Slots(slots) => slots::run(&target()?, slots, output),
        Reading::Runs(runs) => runs::run(&target()?, runs, output),
        Reading::Why(asked) => why::run(&target()?, asked, output),
        Reading::Evaluate(evaluate) => evaluate::run(&target()?, evaluate, output),
        Reading::Events(events) => events::run(&target()?, events, output),
        Reading::Incidents { command, list } => {
            incidents::run(&target()?, command.as_ref(), list, output)
        }
        Reading::Watermark { command } => watermark::run(&target()?, command, output),
        Reading::Logs { run, follow, lines } => {
            let asked = LogQuery { lines: *lines, offset: None, follow: *follow };
            logs::run(&target()?, run, &asked, output)
        }
        Reading::Wait { what, timeout } => wait::run(&target()?, what, *timeout, output),
        Reading::Doctor { live, json } => {
            let depth = if *live { doctor::Depth::Live } else { doctor::Depth::Around };
            doctor::run(&target()?, depth, Form::asked(*json), output)
        }
        Reading::Version => version::run(&target()?, output),
        Reading::Watchdog(watchdog) => watchdog::run(directory, watchdog, output),
        Reading::Archive { once: _ } => archive::run(directory, output),
        Reading::Store { command } => store::run(directory, command, output),
    }
}

fn ask(target: &Target, asking: &Asking, output: &mut Output) -> Result<u8, Failure> {
    match asking {
        Asking::Sensor { command } => sensor::run(target, command, output),
        Asking::Run(run) => run::run(target, run, output),
        Asking::Rerun { pipeline, slot, reason, sending } => {
            rerun::run(target, (pipeline, slot), reason, *sending, output)
        }
        Asking::Cancel { pipeline, slot, reason, sending } => {
            cancel::run(target, (pipeline, slot), reason, *sending, output)
        }
        Asking::Pause { pipeline, reason, until, sending } => {
            pause::run(target, (pipeline, reason), *until, *sending, output)
        }
        Asking::Resume(resume) => resume::run(target, resume, output),
        Asking::Catchup(catchup) => catchup::run(target, catchup, output),
        Asking::Backfill { command } => backfill::run(target, command, output),
        Asking::Complete(complete) => complete::run(target, complete, output),
        Asking::Silence { command } => silence::run(target, command, output),
        Asking::Bark(bark) => bark::run(target, bark, output),
        Asking::Token { command } => token::run(target, command, output),
    }
}
