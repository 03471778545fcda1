//! What a hung program is doing, found out aside: whoever asks about a process that hangs in the kernel may hang there too, and the
//! supervisor has to end it.

use std::{path::Path, time::Duration};

use crate::{
    aside::within,
    forensics::{Report, report_on},
};

/// How long that may take before the program is ended all the same.
const EXAMINED_IN: Duration = Duration::from_secs(5);

/// Writes down what a program is doing, and all else that descends from us.
pub(super) fn examine(pid: u32, folder: &Path, (name, why): (&str, &str)) -> Report {
    let (folder, name, why) = (folder.to_path_buf(), name.to_owned(), why.to_owned());
    let report = within(EXAMINED_IN, move || report_on(pid, &folder, (&name, &why)));
    report.unwrap_or_else(|error| Report { text: String::new(), kept: Err(error) })
}
