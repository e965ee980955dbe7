import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dp.io.tokens import tokenize_items


def documents(*texts):
    return pa.table({"user": [f"u{n}" for n in range(len(texts))], "item": pa.array(texts, pa.string())})


def tokens(*texts, **options):
    table = tokenize_items(documents(*texts), **options)
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def test_gives_each_distinct_token_of_a_document_once_in_order():
    assert tokens("b a b", "", "a") == [("u0", "b"), ("u0", "a"), ("u2", "a")]


def test_words_of_any_script_with_their_apostrophes():
    assert tokens("Don't l\u2019été, 'Straße' слово 東京 x_1") == [
        ("u0", word) for word in ["don't", "l\u2019été", "straße", "слово", "東京", "x_1"]
    ]


def test_keeps_the_case_if_asked():
    assert tokens("A a", lowercase=False) == [("u0", "A"), ("u0", "a")]


def test_takes_another_pattern_and_leaves_out_empty_matches():
    assert tokens("ab1c", token_pattern="[a-z]*") == [("u0", "ab"), ("u0", "c")]


@given(st.lists(st.text("ab ", max_size=8), max_size=8))
def test_agrees_with_splitting_at_spaces(texts):
    expected = [(f"u{n}", word) for n, text in enumerate(texts) for word in dict.fromkeys(text.split())]
    assert tokens(*texts) == expected


def test_tokens_are_dictionary_encoded_and_users_keep_their_type():
    user = pa.array(["x", "y"]).dictionary_encode()
    table = tokenize_items(pa.table({"user": user, "item": ["a b", "b"]}))
    assert table.schema == pa.schema([("user", user.type), ("item", pa.dictionary(pa.int32(), pa.string()))])
    assert table["item"].chunk(0).dictionary.to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "[a-z",
            "token_pattern must be a regular expression of Python's re, got '[a-z':"
            " unterminated character set at position 0",
        ),
        (
            r"(\w)+",
            r"token_pattern must have no capturing groups, got '(\\w)+'; write (?:...) instead of (...)",
        ),
        (None, "token_pattern must be a regular expression (str), got None"),
    ],
)
def test_refuses_patterns(pattern, message):
    with pytest.raises(ValueError) as caught:
        tokens("a", token_pattern=pattern)
    assert str(caught.value) == message
