//! `interlock context`: servers elsewhere that have a name.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::{
    arguments::ContextCommand,
    environment,
    exit::{Failure, SUCCESS},
    output::{Form, Output},
    target::contexts::{Context, Contexts},
};

pub(super) fn run(command: &ContextCommand, output: &mut Output) -> Result<u8, Failure> {
    let ContextCommand::List { json } = command;
    let contexts = Contexts::read(&environment::variable)?;
    let file = contexts.file.display();
    if contexts.is_exposed {
        writeln!(
            output.err,
            "warning: other users of this machine can read the tokens in {file}; `chmod 600` it, or name `tokenFile`"
        )?;
    }
    let all = contexts.all.iter();
    match Form::asked(*json) {
        Form::Json => {
            let objects = all.map(|(name, context)| {
                json!({ "name": name, "url": context.url, "token": token(context), "ca": context.authorities })
            });
            output.json(&Value::Array(objects.collect()))?;
        }
        Form::Text if contexts.all.is_empty() => writeln!(output.out, "no contexts in {file}")?,
        Form::Text => {
            let rows: Vec<_> = all
                .map(|(name, context)| [name.clone(), context.url.clone(), token(context)])
                .collect();
            output.table(["NAME", "URL", "TOKEN"], &rows)?;
        }
    }
    Ok(SUCCESS)
}

/// Where the token of a context comes from.
fn token(context: &Context) -> String {
    match (&context.token_file, &context.token) {
        (Some(file), _) => file.display().to_string(),
        (None, Some(_)) => "in the file".to_owned(),
        (None, None) => "$INTERLOCK_TOKEN".to_owned(),
    }
}
