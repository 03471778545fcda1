//! `interlock archive`: copies to the archive what is not there yet, and ends.

use std::path::Path;

use crate::{exit::Failure, ledger::Ledger, output::Output, place};

pub(super) fn run(directory: &Path, output: &mut Output) -> Result<u8, Failure> {
    // Says better than the store what is missing.
    drop(Ledger::open(directory)?);
    let config = place::config(&place::config_file(directory));
    let Some(archiver) = config.and_then(|config| config.archiver) else {
        return Err(Failure::failed(
            "no archiver is declared",
            "Write `archiver: {enabled: true, dsn: \"${ARCHIVE_DSN}\"}` in interlock.yaml; `interlock validate` says what \
             is wrong with the file.",
        ));
    };
    copying::copy(directory, &archiver, output)
}

#[cfg(feature = "postgres")]
mod copying {
    use std::{io::Write as _, path::Path, sync::Arc};

    use interlock_archive::{ArchiveError, Archiver, Standing, Summary, Telling};
    use interlock_config::server::Archiver as Declared;
    use interlock_core::text::counted;
    use interlock_store::Store;

    use crate::{
        exit::{Failure, SUCCESS},
        output::Output,
        place::Place,
        progress::Progress,
        writer,
    };

    pub(super) fn copy(
        directory: &Path,
        declared: &Declared,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let (store, telling) = open(&Place::of(directory)?)?;
        let runtime = tokio::runtime::Runtime::new()
            .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
        let Summary { events, rows, batches } = runtime.block_on(async {
            let archiver = Archiver::open(store, declared.dsn.expose(), telling).await;
            let archiver = archiver.map_err(|error| failed(&error))?;
            let mut archiver = archiver.reading(declared.rows_at_once as usize);
            let mut progress =
                Progress::unbounded("events and rows archived").resumed_by("interlock archive");
            while archiver.pass().await.map_err(|error| failed(&error))? == Standing::Behind {
                progress.step(archiver.summary.events + archiver.summary.rows, output)?;
            }
            progress.finish(output)?;
            Ok::<_, Failure>(archiver.summary)
        })?;
        if batches == 0 {
            writeln!(output.out, "the archive has everything")?;
        } else {
            let (events, rows) = (counted(events, "event"), counted(rows, "row"));
            writeln!(output.out, "archived {events} and {rows}")?;
        }
        Ok(SUCCESS)
    }

    /// The store; as its writer where only one may write it and nobody does.
    fn open(place: &Place) -> Result<(Arc<dyn Store>, Telling), Failure> {
        if place.is_embedded() {
            return match writer::try_open(&place.folder, "interlock archive")? {
                Some(store) => Ok((Arc::new(store), Telling::Store)),
                None => Ok((place.open_reader()?, Telling::Nobody)),
            };
        }
        Ok((place.open_reader()?, Telling::Store))
    }

    fn failed(error: &ArchiveError) -> Failure {
        let help = match error {
            _ if error.is_retryable() => "Trying again may help: nothing is lost.",
            ArchiveError::Archive { .. } | ArchiveError::Address(_) => {
                "See `archiver.dsn` in interlock.yaml. Nothing is lost: the store keeps what is not archived."
            }
            ArchiveError::Store(_)
            | ArchiveError::AnotherStore { .. }
            | ArchiveError::OfAnother { .. }
            | ArchiveError::NotFollowed => "",
        };
        Failure::failed(error.to_string(), help)
    }
}

#[cfg(not(feature = "postgres"))]
mod copying {
    use std::path::Path;

    use crate::{exit::Failure, output::Output};

    pub(super) fn copy(_: &Path, _: &str, _: &mut Output) -> Result<u8, Failure> {
        Err(Failure::failed("this build has no archiver", "Build it with the feature `postgres`."))
    }
}
