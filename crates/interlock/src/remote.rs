//! A server elsewhere, asked over HTTP with the types that it answers with (ADR 65).
//!
//! One request at a time, each in bounded time. A question may be asked again, and a request to change something has an
//! `Idempotency-Key`, so that an answer that was lost is asked for again without doing anything twice.

mod problem;
pub(crate) mod query;
pub(crate) mod route;
mod stream;
mod writes;

use std::{fs, io::Write as _, thread, time::Duration};

use interlock_core::outbound::{Network, Outbound};
use interlock_trigger::web::{Call, OpenAnswer, Web, WebFailure};
use jiff::SignedDuration;
use serde::{Serialize, de::DeserializeOwned};
use tokio::runtime::{Builder, Runtime};

use self::problem::{Reply, unreadable};
pub(crate) use self::{stream::EventStream, writes::Change};
use crate::{
    exit::Failure,
    output::Output,
    target::{ServerAddress, Token},
};

/// How long an answer may take to begin: a server waits for the owner of a pipeline for ten seconds.
const ANSWERED_IN: SignedDuration = SignedDuration::from_secs(30);
/// How long it may pause.
const PIECE_IN: Duration = Duration::from_secs(30);
/// Bytes of an answer: a thousand pipelines with a hundred open slots each are twenty million.
const ANSWER_MAX: usize = 64 * 1_024 * 1_024;
/// A request is sent so often at most, until it is answered.
const TRIES: u32 = 4;
/// How long is waited before a request is sent again, and at most when the server says for how long.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);

/// A server elsewhere.
#[derive(Debug)]
pub(crate) struct RemoteServer {
    address: ServerAddress,
    web: Web,
    runtime: Runtime,
}

/// A request, as far as it differs from others.
#[derive(Debug, Clone, Default)]
struct Asked {
    method: &'static str,
    /// From `/api/v1` on, with what comes behind the question mark.
    path: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

impl RemoteServer {
    /// Gets ready to ask a server; it is not asked anything yet. Warns where its token can be read on the way.
    pub(crate) fn new(address: &ServerAddress, output: &mut Output) -> Result<Self, Failure> {
        if address.shows_its_token() {
            writeln!(
                output.err,
                "warning: the token is sent to {} unencrypted; others on the way can read and use it. Write https://",
                address.host()
            )?;
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
        Ok(Self { web: web(address)?, runtime, address: address.clone() })
    }

    /// The server's name, as messages say it.
    pub(crate) fn host(&self) -> &str {
        self.address.host()
    }

    /// Asks a question.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, Failure> {
        let path = format!("{path}{}", query::text(query));
        self.read(&self.answered(&Asked { method: "GET", path, ..Asked::default() })?)
    }

    /// The same; `None` where the thing that is asked about is not there.
    pub(crate) fn find<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<Option<T>, Failure> {
        let path = format!("{path}{}", query::text(query));
        let reply = self.reply(&Asked { method: "GET", path, ..Asked::default() })?;
        if reply.is_absence() {
            return Ok(None);
        }
        self.read(&reply.success(&self.address)?).map(Some)
    }

    /// Asks a question that has a body, such as what a plan would be; and its `ETag`.
    pub(crate) fn plan<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<(T, Option<String>), Failure> {
        let reply = self.answered(&Asked {
            method: "POST",
            path: path.to_owned(),
            body: Some(serde_json::to_string(body).unwrap_or_default()),
            ..Asked::default()
        })?;
        Ok((self.read(&reply)?, reply.etag))
    }

    /// Which version the server has, as it says with each answer.
    pub(crate) fn version(&self) -> Result<Option<String>, Failure> {
        let path = "/api/v1/pipelines?limit=1".to_owned();
        Ok(self.answered(&Asked { method: "GET", path, ..Asked::default() })?.version)
    }

    /// A request whose answer is read piece by piece; `None` where there is nothing to read.
    pub(crate) fn open(&self, path: &str, headers: &[(&str, String)]) -> Result<Opened, Failure> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let asked =
            Asked { method: "GET", path: path.to_owned(), headers: headers.collect(), body: None };
        let answer = self.runtime.block_on(self.web.open(&self.call(&asked)));
        let answer = answer.map_err(|failure| self.unreached(&failure))?;
        if answer.status() == 200 {
            return Ok(Opened::Answer(answer));
        }
        Ok(Opened::Refused(self.whole(answer).map_err(|failure| self.unreached(&failure))?))
    }

    /// The next piece of such an answer, or why there is none.
    pub(crate) fn piece(
        &self,
        answer: &mut OpenAnswer,
        within: Duration,
    ) -> Result<Option<Vec<u8>>, WebFailure> {
        self.runtime.block_on(answer.piece(within))
    }

    /// Why an answer that was opened is none.
    pub(crate) fn refusal(&self, reply: Reply) -> Failure {
        match reply.success(&self.address) {
            Err(failure) => failure,
            Ok(reply) => unreadable(&self.address, &reply, "it is of another kind"),
        }
    }

    fn answered(&self, asked: &Asked) -> Result<Reply, Failure> {
        self.reply(asked)?.success(&self.address)
    }

    /// Sends a request, again where it is certain that this does no harm.
    fn reply(&self, asked: &Asked) -> Result<Reply, Failure> {
        let call = self.call(asked);
        for tried in 1.. {
            let sent = self.runtime.block_on(self.web.open(&call));
            let reply = sent.and_then(|answer| self.whole(answer));
            let wait = match &reply {
                Ok(reply) => reply.again_after(),
                // One that cannot be reached at all is not there; one that broke off may be back.
                Err(failure) => failure.may_have_arrived().then_some(AGAIN_AFTER),
            };
            match wait.filter(|_| tried < TRIES) {
                Some(wait) => thread::sleep(wait.min(AGAIN_AFTER_MAX)),
                None => return reply.map_err(|failure| self.unreached(&failure)),
            }
        }
        Err(Failure::failed("internal error: a request without end", ""))
    }

    /// The whole of an answer.
    fn whole(&self, mut answer: OpenAnswer) -> Result<Reply, WebFailure> {
        let header = |name: &str| answer.header(name).map(str::to_owned);
        let mut reply = Reply {
            status: answer.status(),
            etag: header("etag"),
            retry_after: header("retry-after"),
            location: header("location"),
            version: header("interlock-version"),
            body: Vec::new(),
            is_cut: false,
        };
        while let Some(piece) = self.runtime.block_on(answer.piece(PIECE_IN))? {
            reply.body.extend_from_slice(&piece);
            if reply.body.len() > ANSWER_MAX {
                reply.is_cut = true;
                break;
            }
        }
        Ok(reply)
    }

    fn read<T: DeserializeOwned>(&self, reply: &Reply) -> Result<T, Failure> {
        serde_json::from_slice(&reply.body).map_err(|error| {
            let why = if reply.is_cut { "it is too long".to_owned() } else { error.to_string() };
            unreadable(&self.address, reply, &why)
        })
    }

    fn call(&self, asked: &Asked) -> Call {
        let mut headers = asked.headers.clone();
        let bearer =
            |token: &Token| ("authorization".to_owned(), format!("Bearer {}", token.expose()));
        headers.extend(self.address.token.iter().map(bearer));
        headers.push(("interlock-client".to_owned(), "cli".to_owned()));
        Call {
            method: asked.method.to_owned(),
            url: format!("{}{}", self.address.url, asked.path),
            headers,
            body: asked.body.clone(),
            timeout: ANSWERED_IN,
        }
    }

    /// Why there is no answer at all.
    fn unreached(&self, failure: &WebFailure) -> Failure {
        problem::unreached(&self.address, failure)
    }
}

/// What came of a request whose answer is read piece by piece.
pub(crate) enum Opened {
    /// It has begun.
    Answer(OpenAnswer),
    /// There is none.
    Refused(Reply),
}

/// A client for people: it may dial every address, because they say which.
fn web(address: &ServerAddress) -> Result<Web, Failure> {
    let everywhere = ["0.0.0.0/0", "::/0"].map(Network::parse);
    let allow = everywhere.into_iter().filter_map(Result::ok).collect();
    let outbound = Outbound { allow, deny: vec![] };
    let Some(file) = &address.authorities else {
        let made = Web::new(&outbound);
        return made
            .map_err(|error| Failure::failed(format!("cannot make an HTTP client: {error}"), ""));
    };
    let text =
        fs::read(file).map_err(|error| Failure::file("read the authorities in", file, &error))?;
    Web::believing(&outbound, &text).map_err(|error| {
        Failure::failed(
            format!("the authorities in {} cannot be used: {error}", file.display()),
            "The file holds certificates in PEM form. `$INTERLOCK_CA`, or `ca` of the context, names it.",
        )
    })
}
