//! The HTTP interface of this process: where it listens, and the file that says so.
//!
//! A port that is taken must not keep pipelines from running unless somebody asked for that very address: with
//! the default address (a second project on the machine, say) `serve` warns and goes on without HTTP; an address
//! written in `interlock.yaml` is wanted, by a probe or by other machines, and `serve` refuses to start.

use std::{
    fs, io,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use interlock_api::{
    Limits, Running, Surface, Tokens,
    address::{self, BindError, Exposure},
};
use interlock_config::server::Server;
use serde_json::json;

use crate::{clock, exit::Failure};

/// The file in the state folder that says where the interface is.
pub(crate) const FILE: &str = "http.json";
/// How long a request may take.
const ANSWER_IN: Duration = Duration::from_secs(10);

/// The interface at work, and its file.
#[derive(Debug)]
pub(crate) struct Interface {
    running: Running,
    file: PathBuf,
}

impl Interface {
    /// Starts it; `None` when its address is taken and nobody asked for that one.
    pub(crate) fn start(
        server: &Server,
        folder: &Path,
        surface: &Arc<Surface>,
    ) -> Result<Option<Self>, Failure> {
        let tokens = tokens(server);
        let Some(listener) = listen(server, &tokens)? else { return Ok(None) };
        let limits = Limits { time: ANSWER_IN, body_max: server.request_body_max as usize };
        let failed = |error: io::Error| {
            Failure::failed(format!("cannot start the HTTP interface: {error}"), "")
        };
        let surface = Arc::clone(surface);
        let running = interlock_api::start(listener, surface, tokens, limits).map_err(failed)?;
        let file = folder.join(FILE);
        write(&file, &running).map_err(|error| Failure::file("write", &file, &error))?;
        Ok(Some(Self { running, file }))
    }

    /// Its address, as a person types it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.running.address)
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        // Whoever finds the file asks the process that it names; nobody needs one that is gone.
        let _already_gone = fs::remove_file(&self.file);
        self.running.stop();
    }
}

fn tokens(server: &Server) -> Tokens {
    let tokens = server.tokens.iter().map(|token| &token.token).chain(&server.api_key);
    Tokens::new(tokens.map(|token| token.expose().to_owned()))
}

fn listen(server: &Server, tokens: &Tokens) -> Result<Option<TcpListener>, Failure> {
    let exposure = if tokens.is_empty() { Exposure::LoopbackOnly } else { Exposure::Anywhere };
    let refusal = match address::bind(&server.addr, exposure) {
        Ok(listener) => return Ok(Some(listener)),
        Err(refusal) => refusal,
    };
    let message = match &refusal {
        BindError::Refused { source, .. } => format!("{refusal}: {source}"),
        BindError::NoAddress { .. } | BindError::Exposed { .. } | BindError::Taken { .. } => {
            refusal.to_string()
        }
    };
    if !server.addr_is_written {
        tracing::warn!(
            "{message}; going on without HTTP (`server.addr` in interlock.yaml names another address)"
        );
        return Ok(None);
    }
    let help = match refusal {
        BindError::Exposed { .. } => {
            "Write `server.tokens` or `server.apiKey`, or listen on 127.0.0.1."
        }
        BindError::Taken { .. } => {
            "End that process, or write another `server.addr`; 127.0.0.1:0 takes any free port."
        }
        BindError::NoAddress { .. } | BindError::Refused { .. } => {
            "Write a `server.addr` such as 127.0.0.1:8420."
        }
    };
    Err(Failure::failed(message, help))
}

/// In one piece: whoever reads it reads all of it.
fn write(file: &Path, running: &Running) -> io::Result<()> {
    let told = json!({
        "address": running.address.to_string(),
        "pid": std::process::id(),
        "startedAt": clock::now().to_string(),
    });
    let draft = file.with_extension("json.new");
    fs::write(&draft, format!("{told}\n"))?;
    fs::rename(&draft, file)
}
