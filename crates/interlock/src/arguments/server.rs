//! Which server a command asks, as typed.

use clap::{Args, Subcommand};

use crate::{exit::Failure, target::Token};

/// A server that is asked instead of a project on this machine.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServerArgs {
    /// Ask the server at this address, such as `https://interlock.example`, instead of a project here [default: `$INTERLOCK_URL`]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) url: Option<String>,
    /// Ask the server of this name in `~/.config/interlock/contexts.yaml` [default: `$INTERLOCK_CONTEXT`]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) context: Option<String>,
    /// The token that is shown to it; other users of this machine can see it. [default: that of the context, else `$INTERLOCK_TOKEN`]
    #[arg(long, value_name = "TOKEN", global = true, value_parser = Token::parse)]
    pub(crate) token: Option<Token>,
    /// Whether a project was named on the command line.
    #[arg(skip)]
    pub(crate) is_project_named: bool,
}

impl ServerArgs {
    /// Refuses a command line that names two places.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let typed = [
            self.url.as_ref().map(|_| "--url"),
            self.context.as_ref().map(|_| "--context"),
            self.is_project_named.then_some("-C"),
        ];
        let typed: Vec<_> = typed.into_iter().flatten().collect();
        match *typed {
            [first, second, ..] => Err(Failure::usage(
                format!("`{first}` and `{second}` name two places"),
                "A command asks one: leave out the others.",
            )),
            [] | [_] => Ok(()),
        }
    }

    /// Whether any of it was typed.
    pub(crate) fn is_typed(&self) -> bool {
        self.url.is_some() || self.context.is_some() || self.token.is_some()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the servers that have a name, without their tokens.
    List {
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
}
