//! Rows with the tokens of their partitions, by which whole tables are read.

use scylla::deserialize::row::{ColumnIterator, DeserializeRow};
use scylla::deserialize::value::DeserializeValue;
use scylla::deserialize::{DeserializationError, TypeCheckError};
use scylla::frame::response::result::ColumnSpec;

/// A row with the token of its partition.
pub struct Placed<R> {
    pub token: i64,
    pub row: R,
}

impl<'frame, 'metadata, R: DeserializeRow<'frame, 'metadata>> DeserializeRow<'frame, 'metadata> for Placed<R> {
    fn type_check(specs: &[ColumnSpec<'_>]) -> Result<(), TypeCheckError> {
        let Some((token, row)) = specs.split_first() else { return R::type_check(specs) };
        <i64 as DeserializeValue<'frame, 'metadata>>::type_check(token.typ())?;
        R::type_check(row)
    }

    fn deserialize(mut columns: ColumnIterator<'frame, 'metadata>) -> Result<Self, DeserializationError> {
        let column = columns.next().transpose()?;
        let column = column.ok_or_else(|| DeserializationError::new(std::fmt::Error))?;
        let token = i64::deserialize(column.spec.typ(), column.slice)?;
        Ok(Self { token, row: R::deserialize(columns)? })
    }
}
