//! Reading very many rows: parts that one call may ask for.

use crate::{FoundRows, READ_MAX, RowsQuery, Store, StoreError, for_each};

/// Parts of what is asked for, in its order, each of no more rows than one [`Store::read_many`] may ask for,
/// unless one pipeline alone is asked for more.
pub fn read_batches(queries: &[RowsQuery]) -> Vec<&[RowsQuery]> {
    let (mut batches, mut rest, mut rows, mut count) = (Vec::new(), queries, 0, 0);
    for query in queries {
        if count > 0 && rows + query.keys.len() > READ_MAX {
            let (batch, others) = rest.split_at(count);
            batches.push(batch);
            (rest, rows, count) = (others, 0, 0);
        }
        (rows, count) = (rows + query.keys.len(), count + 1);
    }
    if !rest.is_empty() {
        batches.push(rest);
    }
    batches
}

/// Reads one such part. Where the call fails because of what some pipelines hold, each is read by itself: what cannot be read of one is its
/// own result, and no other's (S21). A store that may answer later fails all.
pub async fn read_apart(
    store: &dyn Store,
    batch: &[RowsQuery],
) -> Result<Vec<Result<FoundRows, StoreError>>, StoreError> {
    match store.read_many(batch).await {
        Ok(rows) => Ok(rows.into_iter().map(Ok).collect()),
        Err(error) if error.is_retryable => Err(error),
        Err(_of_one) => {
            for_each(batch.iter().collect(), |query: &RowsQuery| async {
                match store.read(&query.pipeline, &query.keys).await {
                    Err(error) if error.is_retryable => Err(error),
                    read => Ok(read),
                }
            })
            .await
        }
    }
}

#[cfg(test)]
mod tests {
    use interlock_core::id::PipelineId;

    use super::*;
    use crate::Key;

    #[test]
    fn batches_hold_everything_in_its_order_and_never_too_much() {
        let of = |count: usize| RowsQuery {
            pipeline: PipelineId::system(),
            keys: vec![Key::Pipeline; count],
        };
        let sizes = [3, 0, READ_MAX - 3, 1, READ_MAX + 1, 2, READ_MAX];
        let queries = sizes.map(of);
        let batches = read_batches(&queries);
        let counts: Vec<usize> =
            batches.iter().map(|batch| batch.iter().map(|it| it.keys.len()).sum()).collect();
        assert_eq!(counts, [READ_MAX, 1, READ_MAX + 1, 2, READ_MAX]);
        assert_eq!(batches.concat(), queries);
        assert!(read_batches(&[]).is_empty());
    }
}
