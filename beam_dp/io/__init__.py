"""Readers that turn files into pair tables: `pyarrow.Table`s of the columns `user` and `item`, no nulls."""

from beam_dp.io.columns import check_columns as check_columns
from beam_dp.io.delimited import DelimitedFormat as DelimitedFormat
from beam_dp.io.delimited import check_delimited_columns as check_delimited_columns
from beam_dp.io.delimited import read_delimited as read_delimited
from beam_dp.io.documents import read_documents as read_documents
from beam_dp.io.files import check_readable as check_readable
from beam_dp.io.jsonlines import check_json_lines_columns as check_json_lines_columns
from beam_dp.io.jsonlines import read_json_lines as read_json_lines
from beam_dp.io.parquet import check_parquet_columns as check_parquet_columns
from beam_dp.io.parquet import read_parquet as read_parquet
from beam_dp.io.ranges import ByteRange as ByteRange
from beam_dp.io.ranges import byte_ranges as byte_ranges
from beam_dp.io.tokens import check_token_pattern as check_token_pattern
from beam_dp.io.tokens import tokenize_items as tokenize_items
from beam_dp.io.transforms import ReadDelimitedPairs as ReadDelimitedPairs
from beam_dp.io.transforms import ReadDocuments as ReadDocuments
from beam_dp.io.transforms import ReadJsonLinesPairs as ReadJsonLinesPairs
from beam_dp.io.transforms import ReadParquetPairs as ReadParquetPairs
from beam_dp.io.transforms import Tokenize as Tokenize
