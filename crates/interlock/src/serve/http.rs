//! The HTTP interface of this process: where it listens, and the file that says so.
//!
//! A port that is taken must not keep pipelines from running unless somebody asked for that very address: with
//! the default address (a second project on the machine, say) `serve` warns, goes on without HTTP and takes the address when
//! it can be had (`docs/adr/0030-http-is-watched.md`); an address written in `interlock.yaml` is wanted, by a probe or by other
//! machines, and `serve` refuses to start.

use std::{
    fmt, fs,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use interlock_api::{
    Doorkeeper, Hearing, InterfaceDeps, Limits, Post, Running, SessionKey, Surface,
    access::stored_tokens,
    address::{self, BindError, Exposure},
    tls::{Fingerprint, ListenerCertificate, TlsFiles},
    token::{Scope, Token},
};
use interlock_config::server::{ListenerTls, Scope as Declared, Server};
use interlock_private_files as private_files;
use serde_json::{Value, json};

use crate::{
    clock,
    exec::tls::{self, Trust},
    exit::Failure,
    place::Place,
};

/// The file in the state folder that says where the interface is.
pub(crate) const FILE: &str = "http.json";
/// The file in the state folder by which sessions of browsers outlive a restart.
const SESSION_KEY: &str = "session.key";
/// How long a request may take: an owner that has much to do is waited for ten seconds, and then there is an answer all the same.
const ANSWER_IN: Duration = Duration::from_secs(15);
/// How long a client may read nothing of its answer.
const UNREAD_FOR: Duration = Duration::from_secs(15);

/// How long `doctor` waits for an answer.
const PROBE_IN: Duration = Duration::from_secs(5);

/// The interface at work, and its file.
#[derive(Debug)]
pub(crate) struct Interface {
    running: Running,
    file: PathBuf,
    scheme: &'static str,
}

impl Interface {
    /// Starts it. When its address is taken and nobody asked for that one, it waits until it is free.
    pub(crate) async fn start(
        server: &Server,
        place: &Place,
        surface: &Arc<Surface>,
    ) -> Result<Self, Failure> {
        let declared = declared(server);
        let stored = match surface.store.get() {
            Some(store) => stored_tokens(store.as_ref()).await?,
            None => vec![],
        };
        let has_tokens = !declared.is_empty() || !stored.is_empty();
        let exposure = if has_tokens { Exposure::Anywhere } else { Exposure::LoopbackOnly };
        let file = place.folder.join(FILE);
        let told = Arc::new(AddressFile::new(&file));
        let certificate = certificate(server, &place.directory, &told)?;
        let (post, address) = post(server, exposure, &told)?;
        // Whoever is on this machine may ask without a token while there is none at all.
        let is_local = address.is_some_and(|address| address.ip().is_loopback());
        let exposure = if is_local { Exposure::LoopbackOnly } else { Exposure::Anywhere };
        let door = Doorkeeper::new(declared, exposure, Arc::new(clock::now));
        door.take(stored);
        let limits = Limits {
            time: ANSWER_IN,
            body_max: server.request_body_max as usize,
            per_second: server.requests_per_second,
            unread: UNREAD_FOR,
        };
        let failed = |error: io::Error| {
            Failure::failed(format!("cannot start the HTTP interface: {error}"), "")
        };
        let hearing = Hearing { instance: instance(address), clock: Arc::new(clock::now) };
        if let Some(certificate) = certificate {
            surface.certificate.get_or_init(|| certificate);
        } else if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
            tracing::warn!(
                "http://{address} can be reached from other machines and is not encrypted: anyone on the network path can read tokens and \
                 logs (`server.tls` in interlock.yaml)"
            );
        }
        let is_there = matches!(post, Post::Taken(_));
        door.allow_sessions(session_key(&place.folder.join(SESSION_KEY))?);
        let surface = Arc::clone(surface);
        #[cfg(feature = "ui")]
        let pages = Some(pages());
        #[cfg(not(feature = "ui"))]
        let pages = None;
        let deps = InterfaceDeps { post, surface, door, limits, hearing, pages };
        let running = interlock_api::start(deps);
        let running = running.map_err(failed)?;
        if is_there {
            let written = told.listens_at(running.address);
            written.map_err(|error| Failure::file("write", &file, &error))?;
        }
        Ok(Self { running, file, scheme: scheme(server.tls.as_ref()) })
    }

    /// Where it listens, or means to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// As its address begins.
    pub(crate) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        // Whoever finds the file asks the process that it names; nobody needs one that is gone.
        let _already_gone = fs::remove_file(&self.file);
        self.running.stop();
    }
}

/// The pages for people.
#[cfg(feature = "ui")]
fn pages() -> interlock_api::MakePages {
    Box::new(|api| interlock_ui::pages(api, clock::now))
}

/// What vouches for the sessions of browsers. It stays on this host: a ledger that gets lost opens nothing.
fn session_key(file: &Path) -> Result<SessionKey, Failure> {
    let drawn = SessionKey::draw().ok_or_else(|| {
        Failure::failed("the system has no random numbers for a session key", "Start it again.")
    })?;
    // The first of several processes that start at once writes it.
    let written = private_files::create_whole(file, &format!("{}\n", drawn.to_text()));
    written.map_err(|error| Failure::file("write", file, &error))?;
    let text = fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
    // One that is damaged costs people a login, no more.
    match SessionKey::parse(&text) {
        Some(kept) => Ok(kept),
        None => private_files::replace(file, &format!("{}\n", drawn.to_text()))
            .map(|()| drawn)
            .map_err(|error| Failure::file("write", file, &error)),
    }
}

/// Who this is, by a name that the next process here has too.
fn instance(address: Option<SocketAddr>) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let address = address.map(|address| address.to_string());
    format!("{host}/{}", address.unwrap_or_default())
}

/// The tokens of the files.
fn declared(server: &Server) -> Vec<Token> {
    let tokens = server.tokens.iter().map(|token| {
        let scope = match &token.scope {
            Declared::Ping(pipelines) => Scope::Ping(pipelines.clone()),
            Declared::Badge => Scope::Badge,
            Declared::Viewer => Scope::Viewer,
            Declared::Operator => Scope::Operator,
            Declared::Admin => Scope::Admin,
        };
        Token::known(&token.name, scope, token.token.expose())
    });
    let key = server.api_key.iter().map(|key| Token::known("apiKey", Scope::Admin, key.expose()));
    tokens.chain(key).collect()
}

/// Whether an address that is written is of this machine alone.
pub(crate) fn is_for_this_machine(addr: &str) -> bool {
    let full = if addr.starts_with(':') { format!("0.0.0.0{addr}") } else { addr.to_owned() };
    full.to_socket_addrs().is_ok_and(|mut all| all.all(|address| address.ip().is_loopback()))
}

/// Whether the interface could be started, with so many tokens in the store; a sentence when not.
pub(crate) fn probe(server: &Server, stored: usize) -> Result<(), String> {
    let has_tokens = stored > 0 || !declared(server).is_empty();
    let exposure = if has_tokens { Exposure::Anywhere } else { Exposure::LoopbackOnly };
    match bind(server, exposure) {
        Ok(_listener) => Ok(()),
        Err((_, message)) => Err(message),
    }
}

/// Where the interface of a folder is, or was when its process was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) socket: SocketAddr,
    /// Whose certificates are believed, if it speaks TLS.
    pub(crate) trust: Option<Trust>,
}

impl InterfaceAddress {
    /// As `http.json` in a folder has it.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let file = folder.join(FILE);
        let told: Value = serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?;
        let socket = told.get("address")?.as_str()?.parse().ok()?;
        let is_tls = told.get("scheme").and_then(Value::as_str) == Some("https");
        Some(Self { socket, trust: is_tls.then_some(Trust::Told(file)) })
    }

    /// As it is written in an address.
    pub(crate) fn scheme(&self) -> &'static str {
        scheme(self.trust.as_ref())
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.socket)
    }
}

/// What an address begins with, by what there is of TLS.
pub(crate) fn scheme<T>(tls: Option<&T>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

/// The certificates that `http.json` names.
pub(crate) fn certificates_told(file: &Path) -> io::Result<Vec<Fingerprint>> {
    let told: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    let named = told.get("certificates").and_then(Value::as_array).into_iter().flatten();
    Ok(named.filter_map(Value::as_str).map(Fingerprint::known).collect())
}

/// The address under which others reach a listener: one that listens everywhere is reached where this machine sends from.
pub(crate) fn reachable_address(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    // Nothing is sent: the system says which of its addresses it would send from.
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    let ip = asked.map_or(Ipv4Addr::LOCALHOST.into(), |own| own.ip());
    SocketAddr::new(ip, address.port())
}

/// The status and the body that `/healthz` answers with.
pub(crate) fn health(address: &InterfaceAddress) -> io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect_timeout(&address.socket, PROBE_IN)?;
    stream.set_read_timeout(Some(PROBE_IN))?;
    stream.set_write_timeout(Some(PROBE_IN))?;
    let text = match &address.trust {
        None => ask_health(&mut stream)?,
        Some(trust) => ask_health(&mut tls::wrap(stream, &address.socket.to_string(), trust)?)?,
    };
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("it does not speak HTTP"))?;
    let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
    Ok((status, body.unwrap_or_default()))
}

fn ask_health(stream: &mut (impl io::Read + io::Write)) -> io::Result<String> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: interlock\r\nConnection: close\r\n\r\n")?;
    stream.flush()?;
    let mut bytes = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The files of a certificate, which the project names.
pub(crate) fn tls_files(directory: &Path, tls: &ListenerTls) -> TlsFiles {
    TlsFiles { cert: directory.join(&tls.cert), key: directory.join(&tls.key) }
}

/// The certificate of the listener, if it speaks TLS.
fn certificate(
    server: &Server,
    directory: &Path,
    told: &Arc<AddressFile>,
) -> Result<Option<Arc<ListenerCertificate>>, Failure> {
    let Some(tls) = &server.tls else { return Ok(None) };
    let files = tls_files(directory, tls);
    let place = Arc::clone(told);
    let announce = Box::new(move |shown: &[Fingerprint]| {
        if let Err(error) = place.shows(shown) {
            tracing::error!(%error, "cannot write {}", place.file.display());
        }
    });
    let certificate = ListenerCertificate::load(files, Arc::new(clock::now), announce);
    let certificate = certificate.map_err(|error| {
        let help = "`server.tls` in interlock.yaml names a PEM file with the certificate and one with its key.";
        Failure::failed(format!("cannot speak HTTPS: {error}"), help)
    })?;
    let written = told.shows(&certificate.fingerprints());
    written.map_err(|error| Failure::file("write", &told.file, &error))?;
    Ok(Some(Arc::new(certificate)))
}

fn bind(server: &Server, exposure: Exposure) -> Result<TcpListener, (BindError, String)> {
    address::bind(&server.addr, exposure).map_err(|refusal| {
        let message = match &refusal {
            BindError::Refused { source, .. } => format!("{refusal}: {source}"),
            BindError::NoAddress { .. } | BindError::Exposed { .. } | BindError::Taken { .. } => {
                refusal.to_string()
            }
        };
        (refusal, message)
    })
}

/// Where the interface listens; its file is written when it listens later, and names nobody until then.
fn post(
    server: &Server,
    exposure: Exposure,
    place: &Arc<AddressFile>,
) -> Result<(Post, Option<SocketAddr>), Failure> {
    let (refusal, message) = match bind(server, exposure) {
        Ok(listener) => {
            let address = listener.local_addr().ok();
            return Ok((Post::Taken(listener), address));
        }
        Err(refused) => refused,
    };
    if let Some(address) = server.addr.parse().ok().filter(|_| !server.addr_is_written) {
        tracing::warn!(
            "{message}; going on without HTTP until it is free (`server.addr` in interlock.yaml names another address)"
        );
        // One that was killed may have left it.
        let _there_is_none = fs::remove_file(&place.file);
        let place = Arc::clone(place);
        let then = Box::new(move || {
            if let Err(error) = place.listens_at(address) {
                tracing::error!(%error, "cannot write {}", place.file.display());
            }
        });
        return Ok((Post::Wanted { address, because: message, then }, Some(address)));
    }
    let help = match refusal {
        BindError::Exposed { .. } => {
            "Make one with `interlock token create`, write `server.tokens`, or listen on 127.0.0.1."
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

/// The file that says where the interface is and what it shows; in one piece, so that no reader sees half of it.
struct AddressFile {
    file: PathBuf,
    said: Mutex<SaidOfAddress>,
}

#[derive(Default)]
struct SaidOfAddress {
    address: Option<SocketAddr>,
    certificates: Vec<Fingerprint>,
}

impl AddressFile {
    fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), said: Mutex::default() }
    }

    /// It listens there.
    fn listens_at(&self, address: SocketAddr) -> io::Result<()> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.address = Some(address);
        self.write(&said)
    }

    /// It shows one of these certificates; said as soon as it listens.
    fn shows(&self, certificates: &[Fingerprint]) -> io::Result<()> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.certificates = certificates.to_vec();
        if said.address.is_some() { self.write(&said) } else { Ok(()) }
    }

    fn write(&self, said: &SaidOfAddress) -> io::Result<()> {
        let certificates: Vec<_> = said.certificates.iter().map(Fingerprint::as_str).collect();
        let told = json!({
            "address": said.address.map(|address| address.to_string()),
            "scheme": scheme(certificates.first()),
            "certificates": certificates,
            "pid": std::process::id(),
            "startedAt": clock::now().to_string(),
        });
        private_files::replace(&self.file, &format!("{told}\n"))
    }
}
