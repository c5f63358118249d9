"""Loops over the numbers of a row, written as vectors of a fixed length: for the compiled kernels alone.

Where a row is not a whole number of vectors long, a compiler's own vectors leave its last numbers to a slow loop. Here
the last vector of a row begins early instead, so that it ends with the row: some numbers are in two vectors. Arrays
with *room* for a row hold its numbers vector by vector. In the last vector, the places of numbers that the vector
before it has too are 0 in a point, and are not used in a sum. So every number counts once, nothing outside a row is
read, and numbers are added in an order that depends on the length of a row alone, not on the machine.

`lanes` is a tuple; its length, a power of two and at most that of a row, is the length of a vector. Rows come as a
tuple too, so that their number is known when a loop is compiled.
"""
# Numba infers the types inside compiled functions. What is built here is LLVM's own code.
# pyright: basic

from collections.abc import Callable

from llvmlite import ir
from numba.core import cgutils, types

from sottovoce.core.arrays import CACHE_LINE
from sottovoce.core.compiling import intrinsic

_WHOLE, _SHORT = ir.IntType(64), ir.IntType(32)
_FUSED = ("contract",)  # a product and a sum may be rounded once instead of twice
BLOCK = 16 * 1024  # bytes of rows that a pass takes together; a nearest cache holds twice as many
_AHEAD = BLOCK  # bytes from a row to what is fetched meanwhile: the next block comes while this one is used
_SOON = 2 * 1024  # the same for what a row or a client has few bytes of


class _Numbers:
    """An array of compiled code, read and written by vectors."""

    def __init__(self, context, builder, array_type, value, lanes: int) -> None:
        array = context.make_array(array_type)(context, builder, value)
        self.builder, self.data, self.length = (
            builder,
            array.data,
            builder.extract_value(array.shape, array_type.ndim - 1),
        )
        self.vector = ir.VectorType(context.get_value_type(array_type.dtype), lanes)
        self.size = array_type.dtype.bitwidth // 8
        self.fills_lines = lanes * self.size >= CACHE_LINE

    def _at(self, place):
        return self.builder.bitcast(self.builder.gep(self.data, [place]), self.vector.as_pointer())

    def load(self, place, kind=None):
        """The vector that begins at this place, its numbers in another type if one is named."""
        loaded = self.builder.load(self._at(place))
        loaded.align = self.size
        return loaded if kind is None else _cast(self.builder, loaded, kind)

    def store(self, vector, place) -> None:
        self.builder.store(vector, self._at(place)).align = self.size

    def fetch(self, place, count: int, ahead: int, write: bool = False) -> None:
        """Have so many numbers, from `ahead` bytes after this place on, brought into the nearest cache.

        No number depends on it. They may lie behind the end of the array: fetching cannot fail.
        """
        byte, bits = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch = self.builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, bits, bits, bits])
        )
        how = bits(1 if write else 0), bits(3), bits(1)  # 3: to stay in all caches
        for later in range(ahead, ahead + count * self.size, CACHE_LINE):
            line = self.builder.gep(self.data, [self.builder.add(place, _WHOLE(later // self.size))])
            self.builder.call(fetch, [self.builder.bitcast(line, byte), *how])

    def fetch_short(self, starts, begin) -> None:
        """The same for rows whose vectors are shorter than a line: the numbers that follow these rows, line by line.

        `fetch`, called for each vector of each row, would ask for most lines several times.
        """
        if not self.fills_lines:
            later = self.builder.add(starts[0], self.builder.mul(begin, _WHOLE(len(starts))))
            self.fetch(later, len(starts) * self.vector.count, _AHEAD)


def _cast(builder, vector, kind):
    if vector.type.element == kind.element:
        return vector
    widen = isinstance(kind.element, ir.DoubleType)
    return builder.fpext(vector, kind) if widen else builder.fptrunc(vector, kind)


def _splat(builder, number, kind):
    """A vector whose numbers are all this one."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _SHORT(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_SHORT, kind.count), [0] * kind.count))


def _for_each_vector(builder, width, lanes: int, build: Callable[..., None]) -> None:
    """Code for each vector of a row: build(where it stands in an array with room, where in the row, `again`).

    `again`: how many of its first numbers the vector before it has too; None: none, of all vectors but the last.

    The last stands behind the loop: then the loop is short, and a processor reads far ahead of what it computes.
    """
    last = builder.mul(builder.udiv(builder.sub(width, _WHOLE(1)), _WHOLE(lanes)), _WHOLE(lanes))
    with cgutils.for_range_slice(builder, _WHOLE(0), last, _WHOLE(lanes), intp=_WHOLE) as (at, _):
        build(at, at, None)
    begin = builder.sub(width, _WHOLE(lanes))
    build(last, begin, builder.sub(last, begin))


def _once(builder, again, vector, otherwise):
    """A vector of which the first `again` numbers are those of another one; None: as it is."""
    if again is None:
        return vector
    kind = ir.VectorType(_WHOLE, vector.type.count)
    places = ir.Constant(kind, list(range(kind.count)))
    return builder.select(builder.icmp_signed("<", places, _splat(builder, again, kind)), otherwise(), vector)


def _sums(builder, vectors):
    """The sums of one vector or of four, as a vector: the halves of each are added, then the halves of that, and so on.

    Parts of two vectors stand in one before each addition, so that all of its numbers are used.
    """
    left = vectors[0].type.count  # numbers of each sum
    while left > 1:
        left //= 2
        pairs = list(zip(vectors[::2], vectors[1::2], strict=False)) or [(vectors[0], None)]
        vectors = [_halves_added(builder, first, second, left) for first, second in pairs]
    while len(vectors) > 1:
        vectors = [
            _picked(builder, *pair, range(2 * pair[0].type.count))
            for pair in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def _halves_added(builder, first, second, half: int):
    """Parts of 2 half numbers, of one vector or two, become parts of half as many: their halves are added."""
    numbers = first.type.count * (1 if second is None else 2)
    low = [part + place for part in range(0, numbers, 2 * half) for place in range(half)]
    return builder.fadd(*(_picked(builder, first, second, [place + more for place in low]) for more in (0, half)))


def _picked(builder, first, second, places):
    """A vector of the numbers at some places of one vector or two."""
    second = ir.Constant(first.type, ir.Undefined) if second is None else second
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(_SHORT, len(places)), list(places)))


def _starts(builder, rows, width):
    """Where some rows begin, in numbers of the table."""
    return [builder.mul(builder.extract_value(rows, row), width) for row in range(rows.type.count)]


@intrinsic
def spread(typing_context, numbers, room, lanes):
    """spread(numbers, room, lanes): put these numbers into `room`, in its own type; 0 for those put there before."""

    def build(context, builder, signature, given):
        source = _Numbers(context, builder, numbers, given[0], len(lanes))
        target = _Numbers(context, builder, room, given[1], len(lanes))

        def copy(at, begin, again) -> None:
            source.fetch(begin, len(lanes), _SOON)
            target.store(
                _once(builder, again, source.load(begin, target.vector), lambda: ir.Constant(target.vector, None)), at
            )

        _for_each_vector(builder, source.length, len(lanes), copy)
        return context.get_dummy_value()

    return types.void(numbers, room, lanes), build


@intrinsic
def collect(typing_context, room, factor, numbers, lanes):
    """collect(room, factor, numbers, lanes): what `room` holds, times a factor, is put into `numbers`."""

    def build(context, builder, signature, given):
        source = _Numbers(context, builder, room, given[0], len(lanes))
        target = _Numbers(context, builder, numbers, given[2], len(lanes))
        times = _splat(builder, given[1], source.vector)

        def copy(at, begin, again) -> None:
            target.fetch(begin, len(lanes), _SOON, write=True)
            values = builder.fmul(source.load(at), times)
            target.store(_once(builder, again, values, lambda: target.load(begin)), begin)

        _for_each_vector(builder, target.length, len(lanes), copy)
        return context.get_dummy_value()

    return types.void(room, factor, numbers, lanes), build


@intrinsic
def copy(typing_context, numbers, begin, count, room, at):
    """copy(numbers, begin, count, room, at): numbers[begin:begin + count] are put into room[at:], in its own type."""

    def build(context, builder, signature, given):
        _, begin, count, _, at = given
        whole = builder.and_(count, _WHOLE(-4))
        for step, low, high in ((4, _WHOLE(0), whole), (1, whole, count)):
            source = _Numbers(context, builder, numbers, given[0], step)
            target = _Numbers(context, builder, room, given[3], step)
            with cgutils.for_range_slice(builder, low, high, _WHOLE(step), intp=_WHOLE) as (place, _):
                start = builder.add(begin, place)
                if step > 1:
                    source.fetch(start, step, _SOON)
                target.store(source.load(start, target.vector), builder.add(at, place))
        return context.get_dummy_value()

    return types.void(numbers, begin, count, room, at), build


@intrinsic
def dots(typing_context, X, rows, point, room, at, lanes, nth):
    """dots(X, rows, point, room, at, lanes, nth): the products of some rows of X with a point are put into room[at:].

    Meanwhile rows that come later are fetched: each n-th of them, where n is the length of the tuple `nth`. Where slope
    x row is added afterwards, n is 2 and `add_rows` fetches the others: so the memory has no pauses. Where vectors are
    shorter than a line of the cache, one of the two fetches all: this one if n is 1, else `add_rows`.
    """

    def build(context, builder, signature, given):
        table = _Numbers(context, builder, X, given[0], len(lanes))
        factors = _Numbers(context, builder, point, given[2], len(lanes))
        sums = [cgutils.alloca_once_value(builder, ir.Constant(factors.vector, None)) for _ in rows]
        starts = _starts(builder, given[1], table.length)

        def multiply(at, begin, again) -> None:
            factor = factors.load(at)
            if len(nth) == 1:
                table.fetch_short(starts, begin)
            for row, (total, start) in enumerate(zip(sums, starts, strict=True)):
                place = builder.add(start, begin)
                if table.fills_lines and row % len(nth) == len(nth) - 1:
                    table.fetch(place, len(lanes), _AHEAD)
                product = builder.fmul(table.load(place, factors.vector), factor, flags=_FUSED)
                builder.store(builder.fadd(builder.load(total), product, flags=_FUSED), total)

        _for_each_vector(builder, table.length, len(lanes), multiply)
        products = _sums(builder, [builder.load(total) for total in sums])
        _Numbers(context, builder, room, given[3], len(rows)).store(products, given[4])
        return context.get_dummy_value()

    return types.void(X, rows, point, room, at, lanes, nth), build


@intrinsic
def add_rows(typing_context, X, rows, slopes, at, room, lanes):
    """add_rows(X, rows, slopes, at, room, lanes): slope x row, by slopes[at:], is added to what `room` holds.

    Products are summed in the type of the slopes, and their sum is then added in the type of `room`. One row alone is
    of a batch, of which few rows may be needed: nothing is fetched.
    """

    def build(context, builder, signature, given):
        table = _Numbers(context, builder, X, given[0], len(lanes))
        own = _Numbers(context, builder, slopes, given[2], len(rows))
        total = _Numbers(context, builder, room, given[4], len(lanes))
        kind = ir.VectorType(own.vector.element, len(lanes))
        starts, loaded = _starts(builder, given[1], table.length), own.load(given[3])
        factors = [_picked(builder, loaded, None, [row] * len(lanes)) for row in range(len(rows))]

        def add(at, begin, again) -> None:
            if len(rows) > 1:
                table.fetch_short(starts, begin)
            products = ir.Constant(kind, None)
            for row, (factor, start) in enumerate(zip(factors, starts, strict=True)):
                place = builder.add(start, begin)
                if table.fills_lines and len(rows) > 1 and row % 2 == 0:
                    table.fetch(place, len(lanes), _AHEAD)
                product = builder.fmul(table.load(place, kind), factor, flags=_FUSED)
                products = builder.fadd(products, product, flags=_FUSED)
            total.store(builder.fadd(total.load(at), _cast(builder, products, total.vector)), at)

        _for_each_vector(builder, table.length, len(lanes), add)
        return context.get_dummy_value()

    return types.void(X, rows, slopes, at, room, lanes), build
