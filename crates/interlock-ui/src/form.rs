//! What a form says.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};

use crate::{query::Query, trouble::Trouble};

/// The fields of a form; those that were left empty are not there.
#[derive(Debug, Clone)]
pub(crate) struct Form(pub(crate) Query);

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Trouble;

    async fn from_request(request: Request, state: &S) -> Result<Self, Trouble> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| Trouble::bad(&error.body_text()))?;
        Ok(Self(Query::parse(&String::from_utf8_lossy(&bytes))))
    }
}

impl Form {
    /// A field, without the blanks around it.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(str::trim)
    }

    /// A field that must be there.
    pub(crate) fn needed(&self, name: &str, what: &str) -> Result<&str, Trouble> {
        self.text(name)
            .ok_or_else(|| Trouble::unusable(what, "It must be filled in. Go back and write it."))
    }

    /// Whether a box is ticked.
    pub(crate) fn is_ticked(&self, name: &str) -> bool {
        self.text(name).is_some()
    }
}
