//! `interlock token`: who may use the HTTP interface, and for what.
//!
//! A token is drawn here and printed once; what is sent to whoever writes the ledger, and kept there, is its hash.

use std::io::Write as _;

use interlock_answers::{
    LIMIT_MAX,
    model::{
        page::PageQuery,
        request::{NewTokenAnswer, TokenRequest},
        token::TokenAnswer,
    },
};
use interlock_api::token::{Scope, Token};
use interlock_store::record::InboxRecord;
use serde_json::{Value, json, to_value};

use crate::{
    arguments::{Sending, TokenCommand, TokenCreate},
    clock,
    exit::{ACCEPTED, Failure, SUCCESS},
    inbox::{self, Inbox},
    output::{Form, Output, instant},
    remote::{RemoteServer, query::path, route},
    source::{RequestSource, Source},
    target::Target,
};

pub(super) fn run(
    target: &Target,
    command: &TokenCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        TokenCommand::Create(asked) => create(target, asked, output),
        TokenCommand::List { json } => list(target, Form::asked(*json), output),
        TokenCommand::Revoke { id, by, sending } => {
            let record = keep(id.clone(), None, by.name());
            by.check(target)?;
            RequestSource::system(target, output)?.send(&record, *sending, output)
        }
    }
}

fn keep(id: String, value: Option<Value>, by: String) -> InboxRecord {
    InboxRecord::Keep { kind: "token".to_owned(), id, value, by }
}

fn create(target: &Target, asked: &TokenCreate, output: &mut Output) -> Result<u8, Failure> {
    let is_ping = asked.scope == "ping";
    if is_ping == asked.pipelines.is_empty() {
        let help = "Write `--scope ping --pipeline 'orders*'`; other scopes are for all pipelines.";
        return Err(Failure::usage(
            "a token with the scope `ping` names its pipelines; other tokens do not",
            help,
        ));
    }
    let directory = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => {
            asked.by.check(target)?;
            return create_there(&RemoteServer::new(address, output)?, asked, output);
        }
    };
    let scope = Scope::parse(&asked.scope, asked.pipelines.clone());
    let made = scope.and_then(|scope| Token::mint(&asked.name, scope));
    let (text, mut token) =
        made.ok_or_else(|| Failure::failed("cannot get random numbers from the system", ""))?;
    let now = clock::now();
    token.created_at = Some(now);
    token.by = asked.by.name();
    token.expires_at = asked.expires.and_then(|length| now.saturating_add(length).ok());
    let id = token.id();
    let inbox = Inbox::system(directory)?;
    let record = keep(id.clone(), Some(token.to_json()), token.by.clone());
    let answer = inbox.answer(&inbox.post(&record, asked.sending)?)?;
    if let Some(refused) = answer.as_ref().filter(|answer| !answer.accepted) {
        return Err(Failure::refused(inbox::reason(&refused.result), ""));
    }
    let made = NewTokenAnswer { id, token: text, applied: answer.is_some() };
    print_made(&made, asked.sending, output)
}

/// Has a server make one.
fn create_there(
    server: &RemoteServer,
    asked: &TokenCreate,
    output: &mut Output,
) -> Result<u8, Failure> {
    let expires_at = asked.expires.and_then(|length| clock::now().saturating_add(length).ok());
    let request = TokenRequest {
        name: asked.name.clone(),
        scope: asked.scope.clone(),
        pipelines: asked.pipelines.clone(),
        expires_at,
    };
    let change = route::post(path(&["tokens"]), &request);
    let made: NewTokenAnswer = server.change_for(&change, asked.sending.wait)?;
    print_made(&made, asked.sending, output)
}

/// Prints a token, the only time.
fn print_made(made: &NewTokenAnswer, sending: Sending, output: &mut Output) -> Result<u8, Failure> {
    let NewTokenAnswer { id, token, applied } = made;
    if sending.json {
        output.json(&json!({ "id": id, "token": token, "applied": applied }))?;
    } else {
        writeln!(output.out, "{token}")?;
        writeln!(output.err, "this is token {id}: copy it now, it is not shown again")?;
    }
    Ok(if *applied { SUCCESS } else { ACCEPTED })
}

fn list(target: &Target, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let mut asked = PageQuery { after: None, limit: Some(LIMIT_MAX) };
    let mut tokens = Vec::new();
    loop {
        let page = source.tokens(&asked)?;
        tokens.extend(page.items);
        asked.after = page.next;
        if asked.after.is_none() {
            break;
        }
    }
    match form {
        Form::Json => output.json(&to_value(&tokens).unwrap_or_default())?,
        Form::Text if tokens.is_empty() => {
            writeln!(output.out, "no tokens, except what `server.tokens` in interlock.yaml says")?;
        }
        Form::Text => {
            let rows: Vec<_> = tokens.into_iter().map(shown).collect();
            output.table(["ID", "NAME", "SCOPE", "CREATED", "BY", "IN FORCE"], &rows)?;
        }
    }
    Ok(SUCCESS)
}

fn shown(token: TokenAnswer) -> [String; 6] {
    let scope = match &token.pipelines {
        Some(pipelines) => format!("{} {}", token.scope, pipelines.join(",")),
        None => token.scope,
    };
    let until = match token.expires_at {
        Some(end) if end <= clock::now() => format!("expired at {}", instant(end)),
        Some(end) => format!("until {}", instant(end)),
        None => "until it is revoked".to_owned(),
    };
    let created = token.created_at.map(instant).unwrap_or_default();
    [token.id, token.name, scope, created, token.by, until]
}
