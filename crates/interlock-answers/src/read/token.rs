//! Tokens, by name.

use interlock_core::id::PipelineId;
use interlock_store::kept::TOKEN_PREFIX;
use jiff::Timestamp;
use serde::Deserialize;

use crate::{
    AnswerError, Listing, Reader, UnreadableRow,
    listing::NamedPage,
    model::{page::PageQuery, token::TokenAnswer},
};

/// What is stored of a token, but for its hash.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredToken {
    name: String,
    scope: String,
    pipelines: Option<Vec<String>>,
    created_at: Option<Timestamp>,
    #[serde(default)]
    by: String,
    expires_at: Option<Timestamp>,
}

impl Reader<'_> {
    /// The tokens that the store has, by name, without what opens anything. One that cannot be read opens nothing, and is named.
    pub async fn tokens(&self, asked: &PageQuery) -> Result<Listing<TokenAnswer>, AnswerError> {
        let page = NamedPage::of("tokens", asked)?;
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for (key, row) in self.store.sensors(&PipelineId::system()).await? {
            let Some(id) = key.strip_prefix(TOKEN_PREFIX) else { continue };
            match serde_json::from_value(row.record.value) {
                Ok(stored) => found.push(token_answer(id, stored)),
                Err(error) => {
                    let (pipeline, message) = (PipelineId::system().to_string(), error.to_string());
                    unreadable.push(UnreadableRow { pipeline, key, message });
                }
            }
        }
        let place = |token: &TokenAnswer| format!("{}\n{}", token.name, token.id);
        found.sort_by_cached_key(place);
        Ok(Listing { unreadable, ..page.listing(found.into_iter(), place) })
    }
}

fn token_answer(id: &str, stored: StoredToken) -> TokenAnswer {
    let StoredToken { name, scope, pipelines, created_at, by, expires_at } = stored;
    TokenAnswer { id: id.to_owned(), name, scope, pipelines, created_at, by, expires_at }
}
