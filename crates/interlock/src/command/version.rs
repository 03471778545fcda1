//! `interlock version`.

use std::io::Write as _;

use crate::{
    exit::{Failure, SUCCESS},
    output::Output,
    remote::RemoteServer,
    target::Target,
};

pub(super) fn run(target: &Target, output: &mut Output) -> Result<u8, Failure> {
    writeln!(output.out, "interlock {}", env!("CARGO_PKG_VERSION"))?;
    if let Target::Server(address) = target {
        let version = RemoteServer::new(address, output)?.version()?;
        let version =
            version.unwrap_or_else(|| "of another version, which does not say".to_owned());
        writeln!(output.out, "{}: interlock {version}", address.host())?;
    }
    Ok(SUCCESS)
}
