//! `interlock show`: what a pipeline declares, with every default filled in and no secret.

use std::io::Write as _;

use interlock_answers::{
    declaration_json,
    model::{page::PageQuery, pipeline::PipelineDetailAnswer},
};
use serde_json::Value;

use crate::{
    exit::{Failure, SUCCESS},
    inbox::plain,
    output::{Form, Output},
    project,
    remote::{RemoteServer, query::path},
    target::Target,
};

pub(super) fn run(
    target: &Target,
    name: &str,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let spec = declaration(target, name, output)?;
    if form == Form::Json {
        output.json(&spec)?;
    } else {
        print(&spec, 0, output)?;
    }
    Ok(SUCCESS)
}

/// What is declared, as JSON.
fn declaration(target: &Target, name: &str, output: &mut Output) -> Result<Value, Failure> {
    match target {
        Target::Project(directory) => {
            let loaded = project::load(directory)?;
            project::mention_errors(&loaded, output)?;
            Ok(declaration_json(project::pipeline(&loaded, name)?))
        }
        Target::Server(address) => {
            let server = RemoteServer::new(address, output)?;
            let path = path(&["pipelines", name]);
            let detail: PipelineDetailAnswer = server.get(&path, &PageQuery::default())?;
            if detail.declaration.is_null() {
                let help = "What was recorded of it is kept: `interlock slots`.";
                return Err(Failure::usage(format!("`{name}` is no longer declared"), help));
            }
            Ok(detail.declaration)
        }
    }
}

/// Prints an object as indented lines; what is absent or empty is left out.
fn print(value: &Value, depth: usize, output: &mut Output) -> Result<(), Failure> {
    let indent = "  ".repeat(depth);
    let Some(fields) = value.as_object() else {
        return Ok(writeln!(output.out, "{indent}- {}", plain(value))?);
    };
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::Object(inner) if inner.is_empty() => {}
            Value::Object(_) => {
                writeln!(output.out, "{indent}{name}:")?;
                print(value, depth + 1, output)?;
            }
            Value::Array(items) => print_list(name, items, depth, output)?,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                writeln!(output.out, "{indent}{name}: {}", plain(value))?;
            }
        }
    }
    Ok(())
}

fn print_list(
    name: &str,
    items: &[Value],
    depth: usize,
    output: &mut Output,
) -> Result<(), Failure> {
    if items.is_empty() {
        return Ok(());
    }
    let indent = "  ".repeat(depth);
    writeln!(output.out, "{indent}{name}:")?;
    for item in items {
        if let Some(id) = item.get("id") {
            writeln!(output.out, "{indent}  - {}:", plain(id))?;
            print(item, depth + 3, output)?;
        } else {
            print(item, depth + 1, output)?;
        }
    }
    Ok(())
}
