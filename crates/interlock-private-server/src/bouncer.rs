//! A private PgBouncer with transaction pooling: what a server connection remembers is somebody else's a
//! moment later.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
};

use crate::{
    PrivatePostgres,
    keeper::{Keeper, Plan, last_words},
    port::Port,
    postgres::{own_folder, unprivileged},
};

/// A pool in front of a [`PrivatePostgres`].
#[derive(Debug)]
pub struct PrivateBouncer {
    _keeper: Keeper,
    port: Port,
}

impl PrivateBouncer {
    /// A pool of so many connections to the server, whoever asks.
    pub fn start(server: &PrivatePostgres, connections: usize) -> Self {
        let user = unprivileged();
        let folder = own_folder(user.as_ref());
        let port = Port::take();
        let number = port.number;
        let settings = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {number}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 500\n\
             ignore_startup_parameters = extra_float_digits\n",
            server.port()
        );
        // `any` logs everybody in as one user, which the database line must name.
        fs::write(&settings, text.replace("127.0.0.1 port", "127.0.0.1 user=interlock port"))
            .unwrap();
        let line = vec!["pgbouncer".to_owned(), settings.display().to_string()];
        let plan = Plan { line, user: user.map(|user| user.name), signal: "KILL", folder };
        let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, number)).is_ok();
        let Some(keeper) = Keeper::start_and_wait(&plan, answers) else {
            let said = last_words(&plan.folder);
            panic!("pgbouncer does not start (`cargo xtask test` installs it):\n{said}");
        };
        Self { _keeper: keeper, port }
    }

    /// How to reach the database through it.
    pub fn dsn(&self) -> String {
        format!("postgres://interlock@127.0.0.1:{}/postgres?sslmode=disable", self.port.number)
    }
}
