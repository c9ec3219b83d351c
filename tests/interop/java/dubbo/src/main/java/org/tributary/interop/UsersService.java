package org.tributary.interop;

/** What user.proto says; every reply follows from its request alone, so that a caller can check it. */
final class UsersService extends DubboUsersTriple.UsersImplBase {
    static final int PAGE_USERS = 15;
    private static final long DAY_MS = 86_400_000L;
    private static final long EPOCH_MS = 1_700_000_000_000L;

    @Override
    public Verdict createUser(User request) {
        return Verdict.newBuilder().setYes(true).build();
    }

    @Override
    public Verdict existUser(Address request) {
        return Verdict.newBuilder().setYes(request.getEmail().length() % 2 == 0).build();
    }

    @Override
    public User getUser(UserId request) {
        return user(request.getId());
    }

    @Override
    public UserPage listUser(PageNumber request) {
        UserPage.Builder page = UserPage.newBuilder().setNumber(request.getNumber()).setTotal(1000);
        for (int i = 0; i < PAGE_USERS; i++) {
            page.addUsers(user((long) request.getNumber() * PAGE_USERS + i));
        }
        return page.build();
    }

    private static User user(long id) {
        User.Builder user = User.newBuilder()
                .setId(id)
                .setName("User " + id)
                .setSex(1)
                .setBirthdayMs(EPOCH_MS - id * DAY_MS)
                .setEmail("user" + id + "@example.org")
                .setMobile("+49 30 " + (5_000_000 + id))
                .setAddress("Harbour Street " + id + ", 20457 Hamburg")
                .setIcon("https://example.org/icons/" + id + ".png")
                .setStatus(1)
                .setCreatedMs(EPOCH_MS + id)
                .setUpdatedMs(EPOCH_MS + id + DAY_MS);
        for (int permission = 1; permission <= 10; permission++) {
            user.addPermissions(permission * 100);
        }
        return user.build();
    }
}
