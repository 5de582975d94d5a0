/* filter - counts the rows for which an expression holds.
 *
 * The target's data (farjump serve --data FILE) are rows of columns, each a 32-bit number. The payload is text: `i` to
 * interpret the expression or `c` to compile it, the number of columns, a blank, and the expression, such as
 *
 *     c4 a > 100 && (b + c) * 2 <= d
 *
 * with columns a to p, numbers, + - * < <= > >= == != && || ! and parentheses, as in C. The reply is a count, a 64-bit
 * number.
 *
 * Compiled, the expression becomes a function of its own. This function writes it as text, gives that to the target as
 * code (farjump_make), and injects it (farjump_inject). The same expression is the same code, which the target then
 * has already. The target has to take bitcode and let functions make code (farjump serve --bitcode --allow-making). */
#include <farjump_code.h>

FARJUMP_COPY_ARGS(filter)

enum { MAX_STEPS = 64, MAX_DEPTH = 32, MAX_COLUMNS = 16, MAX_TEXT = 12288 };

#define FAIL(text) farjump_panic(text, sizeof(text) - 1)

/* ---- An expression as steps for a stack ---- */

enum operation {
    NUMBER,
    COLUMN,
    ADD,
    SUBTRACT,
    MULTIPLY,
    LESS,
    LESS_OR_EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    EQUAL,
    NOT_EQUAL,
    AND,
    OR,
    NOT,
    NEGATE
};

struct step {
    enum operation operation;
    int32_t value; /* of a number, or the index of a column */
};

struct expression {
    const char *at, *end;
    struct step steps[MAX_STEPS];
    int count, depth, nesting;
    int columns;
};

static void skip_blanks(struct expression *e)
{
    while (e->at < e->end && (*e->at == ' ' || *e->at == '\n'))
        e->at++;
}

static int takes(struct expression *e, const char *sign)
{
    skip_blanks(e);
    const char *at = e->at;
    for (; *sign; sign++, at++)
        if (at == e->end || *at != *sign)
            return 0;
    e->at = at;
    return 1;
}

static void add(struct expression *e, enum operation operation, int32_t value)
{
    if (e->count == MAX_STEPS)
        FAIL("the expression is too long: it may have 64 numbers, columns and operators");
    e->depth += operation <= COLUMN ? 1 : operation < NOT ? -1 : 0;
    if (e->depth > MAX_DEPTH)
        FAIL("the expression is too deep");
    e->steps[e->count++] = (struct step){operation, value};
}

static void parse_or(struct expression *e);

static void parse_operand(struct expression *e)
{
    if (++e->nesting > MAX_DEPTH)
        FAIL("the expression is too deep");
    if (takes(e, "(")) {
        parse_or(e);
        if (!takes(e, ")"))
            FAIL("a `)` is missing in the expression");
    } else if (takes(e, "-")) {
        parse_operand(e);
        add(e, NEGATE, 0);
    } else if (takes(e, "!")) {
        parse_operand(e);
        add(e, NOT, 0);
    } else if (e->at < e->end && *e->at >= '0' && *e->at <= '9') {
        int64_t value = 0;
        for (; e->at < e->end && *e->at >= '0' && *e->at <= '9'; e->at++)
            if ((value = value * 10 + (*e->at - '0')) > INT32_MAX)
                FAIL("a number of the expression is over 2147483647");
        add(e, NUMBER, (int32_t)value);
    } else if (e->at < e->end && *e->at >= 'a' && *e->at < 'a' + e->columns) {
        add(e, COLUMN, *e->at++ - 'a');
    } else {
        FAIL("the expression has something else where a number, a column or a `(` belongs");
    }
    e->nesting--;
}

static void parse_product(struct expression *e)
{
    for (parse_operand(e); takes(e, "*");) {
        parse_operand(e);
        add(e, MULTIPLY, 0);
    }
}

static void parse_sum(struct expression *e)
{
    parse_product(e);
    for (;;) {
        enum operation operation = takes(e, "+") ? ADD : takes(e, "-") ? SUBTRACT : NUMBER;
        if (operation == NUMBER)
            return;
        parse_product(e);
        add(e, operation, 0);
    }
}

static void parse_comparison(struct expression *e)
{
    parse_sum(e);
    /* The longer signs first. */
    enum operation operation = takes(e, "<=")   ? LESS_OR_EQUAL
                               : takes(e, ">=") ? GREATER_OR_EQUAL
                               : takes(e, "<")  ? LESS
                               : takes(e, ">")  ? GREATER
                               : takes(e, "==") ? EQUAL
                               : takes(e, "!=") ? NOT_EQUAL
                                                : NUMBER;
    if (operation != NUMBER) {
        parse_sum(e);
        add(e, operation, 0);
    }
}

static void parse_and(struct expression *e)
{
    for (parse_comparison(e); takes(e, "&&");) {
        parse_comparison(e);
        add(e, AND, 0);
    }
}

static void parse_or(struct expression *e)
{
    for (parse_and(e); takes(e, "||");) {
        parse_and(e);
        add(e, OR, 0);
    }
}

/* ---- The interpreter ---- */

static int holds(const struct expression *e, const int32_t *row)
{
    uint32_t stack[MAX_DEPTH + 1], *top = stack;

    for (int i = 0; i < e->count; i++) {
        const struct step *step = &e->steps[i];
        if (step->operation <= COLUMN) {
            *++top = (uint32_t)(step->operation == NUMBER ? step->value : row[step->value]);
            continue;
        }
        if (step->operation >= NOT) {
            *top = step->operation == NOT ? *top == 0 : 0 - *top;
            continue;
        }
        uint32_t right = *top--, left = *top;
        switch (step->operation) {
        case ADD: *top = left + right; break;
        case SUBTRACT: *top = left - right; break;
        case MULTIPLY: *top = left * right; break;
        case LESS: *top = (int32_t)left < (int32_t)right; break;
        case LESS_OR_EQUAL: *top = (int32_t)left <= (int32_t)right; break;
        case GREATER: *top = (int32_t)left > (int32_t)right; break;
        case GREATER_OR_EQUAL: *top = (int32_t)left >= (int32_t)right; break;
        case EQUAL: *top = left == right; break;
        case NOT_EQUAL: *top = left != right; break;
        case AND: *top = left != 0 && right != 0; break;
        default: *top = left != 0 || right != 0; break;
        }
    }
    return *top != 0;
}

/* ---- The compiler: one instruction of LLVM's for each step ---- */

struct text {
    char bytes[MAX_TEXT];
    size_t len;
};

/* Appends a text, in which each `#` stands for the next number. */
static void put(struct text *text, const char *format, const int64_t *numbers)
{
    for (; *format; format++) {
        char digits[24];
        int count = 0;
        if (text->len + sizeof digits > MAX_TEXT)
            FAIL("the expression is too long");
        if (*format != '#') {
            text->bytes[text->len++] = *format;
            continue;
        }
        int64_t number = *numbers++;
        uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
        do
            digits[count++] = (char)('0' + rest % 10);
        while (rest /= 10);
        if (number < 0)
            text->bytes[text->len++] = '-';
        while (count)
            text->bytes[text->len++] = digits[--count];
    }
}

#define PUT(text, format, ...) put(text, format, (const int64_t[]){__VA_ARGS__})

static void put_comparison(struct text *text, const char *name, int value, int left, int right)
{
    PUT(text, "  %c# = icmp ", value);
    put(text, name, 0);
    PUT(text, " i32 %v#, %v#\n  %v# = zext i1 %c# to i32\n", left, right, value, value);
}

static void put_logic(struct text *text, const char *name, int value, int left, int right)
{
    PUT(text, "  %l# = icmp ne i32 %v#, 0\n  %r# = icmp ne i32 %v#, 0\n  %c# = ", value, left, value, right, value);
    put(text, name, 0);
    PUT(text, " i1 %l#, %r#\n  %v# = zext i1 %c# to i32\n", value, value, value, value);
}

/* Values are named by their steps: %v0, %v1 and so on. */
static void put_steps(struct text *text, const struct expression *e)
{
    int stack[MAX_DEPTH + 1], *top = stack;

    for (int i = 0; i < e->count; i++) {
        const struct step *step = &e->steps[i];
        int right = step->operation > COLUMN ? *top-- : 0;
        int left = step->operation > COLUMN && step->operation < NOT ? *top-- : 0;
        switch (step->operation) {
        case NUMBER: PUT(text, "  %v# = add i32 0, #\n", i, step->value); break;
        case COLUMN:
            PUT(text, "  %p# = getelementptr inbounds i32, ptr %row, i64 #\n  %v# = load i32, ptr %p#, align 4\n", i,
                step->value, i, i);
            break;
        case ADD: PUT(text, "  %v# = add i32 %v#, %v#\n", i, left, right); break;
        case SUBTRACT: PUT(text, "  %v# = sub i32 %v#, %v#\n", i, left, right); break;
        case MULTIPLY: PUT(text, "  %v# = mul i32 %v#, %v#\n", i, left, right); break;
        case LESS: put_comparison(text, "slt", i, left, right); break;
        case LESS_OR_EQUAL: put_comparison(text, "sle", i, left, right); break;
        case GREATER: put_comparison(text, "sgt", i, left, right); break;
        case GREATER_OR_EQUAL: put_comparison(text, "sge", i, left, right); break;
        case EQUAL: put_comparison(text, "eq", i, left, right); break;
        case NOT_EQUAL: put_comparison(text, "ne", i, left, right); break;
        case AND: put_logic(text, "and", i, left, right); break;
        case OR: put_logic(text, "or", i, left, right); break;
        case NOT: PUT(text, "  %c# = icmp eq i32 %v#, 0\n  %v# = zext i1 %c# to i32\n", i, right, i, i); break;
        case NEGATE: PUT(text, "  %v# = sub i32 0, %v#\n", i, right); break;
        }
        *++top = i;
    }
}

static void compile(const struct expression *e)
{
    static const char name[] = "filtered";
    struct text text = {.len = 0};
    uint8_t code[FARJUMP_TEXT_CODE_SIZE(sizeof name, MAX_TEXT)], id[16];

    /* `args` is a struct farjump_data: its bytes at 8, their length at 16. */
    PUT(&text,
        "declare i32 @farjump_reply(ptr, i64)\n"
        "define void @filtered_main(ptr %payload, i64 %size, ptr %args) {\n"
        "entry:\n"
        "  %count = alloca i64, align 8\n"
        "  %start = getelementptr i8, ptr %args, i64 8\n"
        "  %data = load ptr, ptr %start, align 8\n"
        "  %end = getelementptr i8, ptr %args, i64 16\n"
        "  %bytes = load i64, ptr %end, align 8\n"
        "  %rows = udiv i64 %bytes, #\n"
        "  %some = icmp ne i64 %rows, 0\n"
        "  br i1 %some, label %loop, label %done\n"
        "loop:\n"
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n"
        "  %sum = phi i64 [ 0, %entry ], [ %more, %loop ]\n"
        "  %at = mul nuw i64 %i, #\n"
        "  %row = getelementptr inbounds i8, ptr %data, i64 %at\n",
        e->columns * 4, e->columns * 4);
    put_steps(&text, e);
    PUT(&text,
        "  %holds = icmp ne i32 %v#, 0\n"
        "  %one = zext i1 %holds to i64\n"
        "  %more = add i64 %sum, %one\n"
        "  %next = add nuw i64 %i, 1\n"
        "  %left = icmp ult i64 %next, %rows\n"
        "  br i1 %left, label %loop, label %done\n"
        "done:\n"
        "  %all = phi i64 [ 0, %entry ], [ %more, %loop ]\n"
        "  store i64 %all, ptr %count, align 8\n"
        "  %replied = call i32 @farjump_reply(ptr %count, i64 8)\n"
        "  ret void\n"
        "}\n",
        e->count - 1);
    size_t len = farjump_text_code(code, name, sizeof name - 1, text.bytes, text.len);
    switch (farjump_make(code, len, id)) {
    case 0:
        break;
    case FARJUMP_NOT_ALLOWED:
        FAIL("this target lets no function make code: start it with --allow-making");
    default:
        FAIL("this target takes no code of that length");
    }
    if (farjump_inject(id, 0, 0, 0, 0) != 0)
        FAIL("this target has too much to do: try again later");
}

FARJUMP_IFUNC void filter_main(void *payload, size_t payload_size, void *target_args)
{
    const struct farjump_data *data = target_args;
    const char *text = farjump_private_copy(payload, payload_size, 8);
    struct expression e = {.at = text, .end = text + payload_size};
    uint64_t count = 0;

    if (!text || payload_size < 2 || (*text != 'i' && *text != 'c'))
        FAIL("begin with `i` to interpret or `c` to compile, and the number of columns");
    for (e.at++; e.at < e.end && *e.at >= '0' && *e.at <= '9' && e.columns <= MAX_COLUMNS; e.at++)
        e.columns = e.columns * 10 + (*e.at - '0');
    if (e.columns < 1 || e.columns > MAX_COLUMNS)
        FAIL("the number of columns is not in 1 to 16");
    parse_or(&e);
    skip_blanks(&e);
    if (e.at != e.end)
        FAIL("the expression goes on where it should end");
    if (*text == 'c') {
        compile(&e);
        return;
    }
    size_t width = (size_t)e.columns, rows = data->len / (4 * width);
    const int32_t *row = (const int32_t *)data->bytes;
    for (size_t i = 0; i < rows; i++, row += width)
        count += (uint64_t)holds(&e, row);
    farjump_reply(&count, sizeof count);
}
